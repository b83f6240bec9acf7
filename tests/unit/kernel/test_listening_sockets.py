"""Listeners as /proc/PID/net/tcp lists them."""

from hypothesis import given
from hypothesis import strategies as st

from agent.kernel.listening_sockets import ListeningSocket, listeners_of_table

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(local: str, state: str = "0A", inode: int = 42) -> str:
    return f"   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 x\n"


def test_a_listener_on_every_address_is_found_with_its_port_and_inode() -> None:
    assert list(listeners_of_table(HEADER + line("00000000:1F90"))) == [ListeningSocket(8080, 42)]


def test_a_dual_stack_listener_is_found() -> None:
    assert list(listeners_of_table(HEADER + line("0" * 32 + ":0050"))) == [ListeningSocket(80, 42)]


def test_listeners_on_loopback_are_left_out() -> None:
    mapped = "0000000000000000FFFF00000100007F"
    table = HEADER + line("0100007F:1F90") + line("0" * 24 + "01000000:1F90") + line(f"{mapped}:1F90")
    assert list(listeners_of_table(table)) == []


def test_connections_are_left_out() -> None:
    assert list(listeners_of_table(HEADER + line("00000000:1F90", state="01"))) == []


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    list(listeners_of_table(text))
