"""Whatever a watch stream holds, only the promised failures come of it; needs loopback only."""

import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cluster.connection import connect
from agent.cluster.events import NamespaceEvents
from agent.cluster.failures import Expired, Garbled
from agent.cluster.pods import NodePods, watch_pods
from agent.cluster.response_body import ResponseBody
from agent.cluster.slices import NamespaceSlices
from agent.cluster.watch import WatchListener
from agent.cluster.watch_event import Change, event_of, listing_of
from agent.core.records import ClusterRecord, EndpointTerminating, PodChanged
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from tests.cluster.api_server import NODE, QUICK, a_pod
from tests.cluster.collected import Collected
from tests.cluster.scripted_server import CHUNKED, chunk, ok, scripted
from tests.recordings.reader import recorded_events

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda content: (
        st.lists(content, max_size=3) | st.dictionaries(st.text(max_size=10), content, max_size=3)
    ),
    max_leaves=5,
)
CASES = ("deletions/prestop-sleep/watch-pods.jsonl", "deletions/prestop-sleep/watch-endpointslices.jsonl")


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    """Real events of pods and of slices, as the stream held them."""
    return tuple(
        {"type": event.type, "object": event.object} for case in CASES for event in recorded_events(case)
    )


EVENTS = st.sampled_from(range(10**6)).map(lambda number: recorded()[number % len(recorded())])


@st.composite
def damaged_lines(draw: st.DrawFn) -> bytes:
    """A real line with a piece cut out, and other bytes in its place."""
    line = json.dumps(draw(EVENTS)).encode()
    start = draw(st.integers(0, len(line)))
    end = draw(st.integers(start, min(len(line), start + 200)))
    return line[:start] + draw(st.binary(max_size=20)) + line[end:]


@st.composite
def damaged_events(draw: st.DrawFn) -> dict[str, Any]:
    """A real event with a value of another kind somewhere in it, or one that is missing."""
    event = copy.deepcopy(draw(EVENTS))
    parent: Any = event
    for _ in range(draw(st.integers(0, 6))):
        keys: list[Any] = sorted(parent) if isinstance(parent, dict) else list(range(len(parent)))
        inner = [key for key in keys if isinstance(parent[key], (dict, list)) and parent[key]]
        if not inner:
            break
        parent = parent[draw(st.sampled_from(inner))]
    key = draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
    if draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(JUNK)
    return event


def ignored(record: ClusterRecord) -> None:
    """Nobody is told."""


LISTENERS: tuple[Callable[[], WatchListener], ...] = (
    lambda: NodePods(ignored),
    lambda: NamespaceSlices(NODE, ignored),
    lambda: NamespaceEvents(ignored),
)


def tell_all(line: bytes) -> None:
    """Have the line taken in as the watch does; fails the test by anything but the promised failures."""
    try:
        event = event_of(line)
    except (Expired, Garbled):
        return
    for made in LISTENERS:
        listener = made()
        listener.listed((event.object,), 1)
        if event.change is not Change.BOOKMARK:
            listener.changed(event.change, event.object, 2)
        listener.listed((), 3)


@given(st.binary(max_size=300) | damaged_lines() | damaged_events().map(lambda e: json.dumps(e).encode()))
def test_no_line_of_a_stream_breaks_what_takes_it_in(line: bytes) -> None:
    tell_all(line)


@given(st.binary(max_size=300) | JUNK.map(lambda value: json.dumps(value).encode()))
def test_no_answer_to_a_list_breaks_the_reader(body: bytes) -> None:
    with contextlib.suppress(Garbled):
        listing_of(body)


@given(damaged_events())
def test_a_damaged_pod_or_slice_hides_no_whole_one_after_it(damaged: dict[str, Any]) -> None:
    told: list[ClusterRecord] = []
    pods, slices = NodePods(told.append), NamespaceSlices(NODE, told.append)
    for listener in (pods, slices):
        content = damaged.get("object")
        if isinstance(content, dict):
            listener.changed(Change.MODIFIED, content, 1)
    pods.changed(Change.ADDED, a_pod("whole"), 2)
    assert "whole" in [record.pod.name for record in told if isinstance(record, PodChanged)]
    whole_slice = {
        "metadata": {"name": "whole", "uid": "w", "labels": {"kubernetes.io/service-name": "whole"}},
        "endpoints": [
            {
                "targetRef": {"kind": "Pod", "uid": "whole"},
                "conditions": {"ready": False, "terminating": True},
            }
        ],
    }
    slices.changed(Change.ADDED, whole_slice, 2)
    assert "whole" in [record.pod_uid for record in told if isinstance(record, EndpointTerminating)]


class Pieces:
    """Stands for an HTTP answer that comes in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def stream(self, amount: int, decode_content: bool) -> Iterator[bytes]:
        return iter(self.pieces)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=20))
def test_lines_are_the_same_wherever_the_stream_is_cut(text: bytes, cuts: list[int]) -> None:
    text += b"\n"
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(at)]
    body = ResponseBody(cast(urllib3.BaseHTTPResponse, Pieces(pieces)))
    assert list(body.lines()) == [line for line in text.split(b"\n") if line.strip()]


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=300) | damaged_lines(), st.booleans(), st.booleans())
def test_a_valid_event_after_any_junk_is_taken(junk: bytes, whole_line: bool, cut_off: bool) -> None:
    def answer(head: bytes) -> Iterator[bytes]:
        watches = sum(b"watch=1" in request for request in server.requests)
        if b"watch=1" not in head:
            yield ok(json.dumps({"metadata": {"resourceVersion": "10"}, "items": []}).encode())
        elif watches == 1:
            yield CHUNKED
            if junk:
                yield chunk(junk + (b"\n" if whole_line else b""))
            yield b"" if cut_off else chunk(b"")
        else:
            pod = a_pod("after")
            pod["metadata"]["resourceVersion"] = str(10**12)
            yield CHUNKED + chunk(json.dumps({"type": "ADDED", "object": pod}).encode() + b"\n") + chunk(b"")

    told: Collected[ClusterRecord] = Collected()
    with scripted(answer) as server, TemporaryDirectory() as folder:
        connection = connect(write_kubeconfig(Path(folder) / "kubeconfig", server.url))
        watch = watch_pods(connection, NODE, told, timing=QUICK)
        watch.start()
        try:
            told.wait_for(
                lambda records: any(
                    isinstance(record, PodChanged) and record.pod.name == "after" for record in records
                )
            )
        finally:
            watch.stop()
