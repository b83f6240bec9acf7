"""The load of one play: its generators, from start to their results."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.clients import Load, LoadPlan, LoadResult
from agent.lab.node.errors import NodeError
from agent.lab.node.node import Node
from agent.lab.node.outcome import Via
from agent.lab.scenario import Stream

LONGEST_SECONDS = 60.0
"""When generators stop by themselves should nobody stop them."""

_CONNECTIONS_AT_A_TIME = 256
_END_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Door:
    """Where clients connect to."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What one stream's generator saw."""

    stream: Stream
    load: LoadResult


class Streams:
    """Running generators, one for each stream."""

    def __init__(
        self,
        node: Node,
        clients: ClientNamespace,
        streams: Iterable[Stream],
        doors: dict[Via, Door],
        seed: int,
    ) -> None:
        self._loads: list[tuple[Stream, Load]] = []
        for number, stream in enumerate(streams):
            plan = _plan(stream, doors[stream.via], seed + number)
            self._loads.append((stream, node.start_load(clients, plan)))

    def finish(self) -> tuple[StreamResult, ...]:
        """Send no more requests, await those in flight. Raises NodeError if a generator failed."""
        for _, load in self._loads:
            load.stop()
        for _, load in self._loads:
            if not load.wait(_END_SECONDS):
                raise NodeError(f"a load generator still runs {_END_SECONDS:.0f} s after it was stopped")
        return tuple(StreamResult(stream, load.result()) for stream, load in self._loads)


def _plan(stream: Stream, door: Door, seed: int) -> LoadPlan:
    return LoadPlan(
        host=door.host,
        port=door.port,
        via=stream.via,
        seconds=LONGEST_SECONDS,
        rate=stream.rate,
        method=stream.method,
        path=stream.path,
        body_bytes=64 if stream.method == "POST" else 0,
        keep_alive=stream.keep_alive is not None,
        connections=stream.keep_alive or _CONNECTIONS_AT_A_TIME,
        check_idle=stream.check_idle,
        seed=seed,
    )
