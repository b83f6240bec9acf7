"""The node's ends of the pods' virtual links: when one goes, the pod's network is gone."""

import threading
import time
from collections.abc import Callable

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import RTMGRP_LINK

from agent.core.records import NetworkRemoved


class LinkWatch:
    """Tells of the removal of links. A CNI plugin that uses none (host-device, ipvlan) is not seen here."""

    def __init__(self, emit: Callable[[NetworkRemoved], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._netns_of_link: dict[int, int] = {}
        self._route = IPRoute()
        self._route.bind(groups=RTMGRP_LINK)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the socket."""
        self._stopping.set()
        self._route.close()

    def add(self, netns: int, links: tuple[int, ...]) -> None:
        """Watch these links of a namespace; links that are gone already are told of at once."""
        with self._lock:
            for link in links:
                self._netns_of_link[link] = netns
        self._compare()

    def forget(self, netns: int) -> None:
        """Watch the namespace's links no longer."""
        with self._lock:
            for link in [link for link, owner in self._netns_of_link.items() if owner == netns]:
                del self._netns_of_link[link]

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                messages = list(self._route.get())
            except OSError:
                # Messages were lost (ENOBUFS), or the socket was closed by stop().
                if not self._stopping.is_set():
                    self._compare()
                continue
            now = time.time_ns()
            for message in messages:
                if message["event"] == "RTM_DELLINK":
                    self._removed(message["index"], now)

    def _removed(self, link: int, at_ns: int) -> None:
        with self._lock:
            netns = self._netns_of_link.pop(link, None)
        if netns is not None:
            self._emit(NetworkRemoved(at_ns, netns))

    def _compare(self) -> None:
        """Tell of the links that are watched and do not exist."""
        with IPRoute() as route:
            present = {link["index"] for link in route.get_links()}
        with self._lock:
            missing = [link for link in self._netns_of_link if link not in present]
        for link in missing:
            self._removed(link, time.time_ns())
