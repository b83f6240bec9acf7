"""Network namespaces: their cookies, and a look around inside one."""

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyroute2 import IPRoute

from agent.kernel.errors import KernelSideError

Result = TypeVar("Result")

_SO_NETNS_COOKIE = 71
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A network namespace as seen from inside: `host_links` are the host's ends of its virtual links."""

    cookie: int
    host_links: tuple[int, ...]


def cookie_here() -> int:
    """The cookie of this thread's network namespace: never reused while the node is up (Linux 5.14)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            raw = probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError as error:
            raise KernelSideError(
                f"no network namespace cookies on this kernel ({error.strerror}): Linux 5.14 is needed"
            ) from None
    return int.from_bytes(raw, "little")


def view_namespace(pid: int) -> NamespaceView | None:
    """Look around in a process's network namespace; None when the process is gone or cannot be entered."""
    return _inside(pid, lambda: NamespaceView(cookie_here(), _host_links()))


def _host_links() -> tuple[int, ...]:
    with IPRoute() as route:
        links = [link.get_attr("IFLA_LINK") for link in route.get_links() if link["ifi_type"] == 1]
    return tuple(link for link in links if link)


def _inside(pid: int, look: Callable[[], Result]) -> Result | None:
    """Run `look` on a thread of its own that has entered the namespace, and never leaves it."""
    results: list[Result] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            # Python 3.12 has os.setns; this works on 3.11 too.
            if libc.setns(namespace, _CLONE_NEWNET) == 0:
                results.append(look())
        finally:
            os.close(namespace)

    thread = threading.Thread(target=enter, name="namespace-view")
    thread.start()
    thread.join()
    return results[0] if results else None
