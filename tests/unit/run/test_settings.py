"""Where to listen, as a person writes it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.run.settings import parse_listen, parse_retention


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9435", ("127.0.0.1", 9435)),
        ("[::1]:80", ("::1", 80)),
        (":9435", ("", 9435)),
        ("0.0.0.0:9435", ("0.0.0.0", 9435)),
        ("node.example:0", ("node.example", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "host:", "host:65536", "host:-1", "host:http", "host:²"])
def test_what_is_no_address_is_named_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"for example :9435"):
        parse_listen(text)


@given(st.text())
def test_no_text_gives_a_port_out_of_range(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= parse_listen(text)[1] <= 65535


@pytest.mark.parametrize(("text", "seconds"), [("600", 600.0), ("0", 0.0), ("1.5", 1.5)])
def test_a_retention_is_a_number_of_seconds(text: str, seconds: float) -> None:
    assert parse_retention(text) == seconds


@pytest.mark.parametrize("text", ["", "long", "-1", "nan", "inf", "1e300"])
def test_what_is_no_retention_is_named_with_its_flag(text: str) -> None:
    with pytest.raises(ValueError, match=f"--retention {text!r}"):
        parse_retention(text)
