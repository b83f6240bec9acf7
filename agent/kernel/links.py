"""The node's ends of the pods' virtual links: when one goes, the pod's network is gone."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from pyroute2 import AsyncIPRoute, IPRoute
from pyroute2.netlink.rtnl import RTMGRP_LINK

from agent.core.records import NetworkRemoved


class LinkWatch:
    """Tells of the removal of links. A CNI plugin that uses none (host-device, ipvlan) is not seen here."""

    def __init__(self, emit: Callable[[NetworkRemoved], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._netns_of_link: dict[int, int] = {}
        self._loop = asyncio.new_event_loop()
        self._bound = threading.Event()
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Its threads, which end only when it is stopped."""
        return (self._thread,)

    def start(self) -> None:
        """Begin to watch; returns once nothing can be missed any more."""
        self._thread.start()
        self._bound.wait()

    def stop(self) -> None:
        """End the thread and close its socket; it need not have been started."""
        if self._thread.ident is None:
            self._loop.close()
            return
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def add(self, links_of: Mapping[int, tuple[int, ...]]) -> None:
        """Watch the links of these namespaces; links that are gone already are told of at once."""
        with self._lock:
            for netns, links in links_of.items():
                self._netns_of_link.update(dict.fromkeys(links, netns))
        self._compare()

    def forget(self, netns: int) -> None:
        """Watch the namespace's links no longer."""
        with self._lock:
            for link in [link for link, owner in self._netns_of_link.items() if owner == netns]:
                del self._netns_of_link[link]

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._watch())
        self._loop.close()

    async def _watch(self) -> None:
        while True:
            try:
                async with AsyncIPRoute() as route:
                    await route.bind(groups=RTMGRP_LINK)
                    self._bound.set()
                    async for message in route.get():
                        if message["event"] == "RTM_DELLINK":
                            self._removed(message["index"], time.time_ns())
            except OSError:
                # The socket's buffer overflowed (ENOBUFS): messages are lost.
                self._compare()

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
