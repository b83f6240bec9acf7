"""In a pod: the API server by its CA certificate, and a token that the kubelet replaces meanwhile."""

import datetime
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes.config import incluster_config

from agent.cluster.connection import connect
from agent.cluster.failures import StatusFailure
from tests.cluster.scripted_server import ScriptedServer, ok, scripted

FORBIDDEN = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Clock:
    """What the kubernetes client takes for the time when it decides whether to read the token again."""

    def __init__(self) -> None:
        self.ahead = datetime.timedelta()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + self.ahead


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, made = tmp_path / "key.pem", tmp_path / "ca.crt"
    subprocess.run(
        shlex.split(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
            f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {made}"
        ),
        check=True,
        capture_output=True,
    )
    return key, made


@pytest.fixture
def api(certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    """An API server that takes one token, `valid`, at first the first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])

    def answer(head: bytes) -> Iterator[bytes]:
        yield ok(b"{}") if b"\r\nauthorization: bearer second\r\n" in head.lower() else FORBIDDEN

    with scripted(answer, context) as server:
        yield server


@pytest.fixture
def clock(
    api: ScriptedServer, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Clock:
    """The surroundings of a pod: environment, CA certificate, token."""
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate[1]))
    clock = Clock()
    monkeypatch.setattr(
        incluster_config,
        "datetime",
        SimpleNamespace(datetime=clock, timedelta=datetime.timedelta),
    )
    return clock


def test_a_token_that_the_kubelet_has_replaced_is_used_within_a_minute(clock: Clock, tmp_path: Path) -> None:
    connection = connect(None)
    (tmp_path / "token").write_text("second")
    clock.ahead = datetime.timedelta(seconds=61)
    with connection.get("/api/v1/pods", {}, 5) as body:
        assert body.whole() == b"{}"


@pytest.mark.usefixtures("clock")
def test_a_token_that_is_refused_is_read_again_at_once(tmp_path: Path) -> None:
    connection = connect(None)
    (tmp_path / "token").write_text("second")
    with pytest.raises(StatusFailure, match="401"):
        connection.get("/api/v1/pods", {}, 5)
    with connection.get("/api/v1/pods", {}, 5) as body:
        assert body.whole() == b"{}"


@pytest.mark.usefixtures("clock")
def test_a_refused_token_is_kept_while_its_file_is_being_written(tmp_path: Path) -> None:
    connection = connect(None)
    for content in ("", "second"):
        (tmp_path / "token").write_text(content)
        with pytest.raises(StatusFailure, match="401"):
            connection.get("/api/v1/pods", {}, 5)
    with connection.get("/api/v1/pods", {}, 5) as body:
        assert body.whole() == b"{}"


def test_a_token_that_is_just_being_written_costs_one_attempt(clock: Clock, tmp_path: Path) -> None:
    connection = connect(None)
    (tmp_path / "token").write_text("")
    clock.ahead = datetime.timedelta(seconds=61)
    with pytest.raises(Exception, match="Token file exists but empty"):
        connection.get("/api/v1/pods", {}, 5)
    (tmp_path / "token").write_text("second")
    with connection.get("/api/v1/pods", {}, 5) as body:
        assert body.whole() == b"{}"
