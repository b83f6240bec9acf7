"""Whatever an agent takes in and counts, the replay of its recording gives the metrics that it shows."""

import tempfile
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from agent.core.counts import Count, CountKey, KernelCounts
from agent.core.kinds import Kind
from agent.core.life import Stage
from agent.core.observation import Observation, OwnState
from agent.core.orders import ForgetNamespace
from agent.core.phases import Fact, Phase
from agent.core.recording import PassedOver, RecordingHeader, parse_entries, parse_header
from agent.core.records import (
    Address,
    ContainerExited,
    EndpointTerminating,
    KubeProxyState,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    NftablesCommitted,
    PodChanged,
    PodRemoved,
    PodsListed,
    Record,
    SignalResult,
    SourceIdentified,
    SourceKind,
    StopSignalSent,
)
from agent.core.termination import Termination
from agent.outputs.prometheus import AgentCollector
from agent.replay.player import Player
from agent.run.recorder import Recorder
from tests.unit.core.lives import NETNS, SECOND, a_pod

PODS = 3
START_NS = 1_800_000_000 * SECOND
FACTS = [
    Fact(0),
    Fact.LISTENED,
    Fact.LISTENED | Fact.DELETED,
    Fact.LISTENED | Fact.DELETED | Fact.CLOSED,
    Fact.DELETED | Fact.EXITED,
    Fact.DELETED | Fact.GONE,
]


class PlayedAgent:
    """The loop of `agent run` and the kernel's counters, by a clock of its own."""

    def __init__(self, file: Path, limit: int, retention_seconds: float) -> None:
        self.header = RecordingHeader("node", "1", retention_seconds)
        self.recorder = Recorder(file, limit, self.header)
        self.observation = Observation(int(retention_seconds * SECOND))
        self.counts: dict[CountKey, Count] = {}
        self.sources: dict[tuple[int, Address], int] = {}
        self.now_ns = START_NS

    def take(self, record: Record) -> None:
        self.recorder.took(record)
        self.observation.apply(record)

    def count(self, pod: int, kind: Kind | None, facts: Fact, client: int) -> None:
        key = CountKey(NETNS + pod, 8080, kind, facts)
        counted = Count(1, self.now_ns, self.now_ns)
        self.counts[key] = self.counts[key] + counted if key in self.counts else counted
        if kind is not None:
            source = (NETNS + pod, IPv4Address(client))
            self.sources[source] = self.sources.get(source, 0) + 1

    def tick(self) -> None:
        self.now_ns += SECOND
        counts = KernelCounts(dict(self.counts), dict(self.sources))
        self.recorder.read(self.now_ns, counts, OwnState(), self.observation.tracker)
        for order in self.observation.settle(self.now_ns, counts):
            if isinstance(order, ForgetNamespace):
                self.counts = {key: n for key, n in self.counts.items() if key.netns != order.netns}

    def page(self) -> str:
        return page_of(Player(self.observation, KernelCounts(dict(self.counts), dict(self.sources))))

    def terminations(self) -> tuple[Termination, ...]:
        return self.observation.terminations(KernelCounts(dict(self.counts)))


def page_of(player: Player) -> str:
    snapshot = player.observation.snapshot(player.counts, player.own)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentCollector(lambda: snapshot, "1"))
    return "\n".join(sorted(generate_latest(registry).decode().splitlines()))


def replayed(file: Path) -> Player:
    with file.open() as lines:
        header, passed_over = parse_header(next(lines)), PassedOver()
        player = Player(Observation(int(header.retention_seconds * SECOND)))
        player.play(parse_entries(lines, passed_over))
    assert passed_over == PassedOver()
    assert player.failures == 0
    return player


def records_of(pod: int, at_ns: int) -> dict[str, Record]:
    """What can be told of a pod, by a name for each."""
    uid, netns, init = f"uid-{pod}", NETNS + pod, 1000 + pod
    return {
        "known": PodChanged(at_ns, a_pod(uid, address=f"10.0.0.{pod + 1}")),
        "identified": NamespaceIdentified(at_ns, netns, uid),
        "opened": ListenerOpened(at_ns, netns, 8080, init),
        "deleted": PodChanged(at_ns, a_pod(uid, address=f"10.0.0.{pod + 1}", deleted_ns=at_ns)),
        "endpoint": EndpointTerminating(at_ns, uid, "web", removed=False, ready_left=1),
        "signalled": StopSignalSent(at_ns, netns, init, 15, SignalResult.DELIVERED, "runc"),
        "closed": ListenerClosed(at_ns, netns, 8080, by_exit=False),
        "exited": ContainerExited(at_ns, netns, init, 0),
        "network": NetworkRemoved(at_ns, netns),
        "removed": PodRemoved(at_ns, uid),
        "listed": PodsListed(at_ns),
        "synced": KubeProxyState(at_ns, True, at_ns - 1000, at_ns - 2000, 0),
        "committed": NftablesCommitted(at_ns, pod, "nft"),
        "source": SourceIdentified(at_ns, IPv4Address(pod + 1), SourceKind.NODE, "node-2"),
    }


Step = tuple[object, ...]
A_POD = st.integers(0, PODS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), A_POD, st.sampled_from(sorted(records_of(0, 0)))),
        st.tuples(
            st.just("count"), A_POD, st.sampled_from([None, *Kind]), st.sampled_from(FACTS), st.integers(1, 4)
        ),
        st.tuples(st.just("life"), A_POD),
        st.tuples(st.just("unreachable"), A_POD, st.sampled_from([1, 3, 10])),
        st.tuples(st.just("wait"), st.sampled_from([1, 2, 10, 31, 70])),
    ),
    max_size=40,
)


def play(agent: PlayedAgent, steps: list[Step]) -> None:
    for step in steps:
        match step:
            case ("record", int(pod), str(name)):
                agent.take(records_of(pod, agent.now_ns)[name])
            case ("count", int(pod), Kind() | None as kind, Fact() as facts, int(client)):
                agent.count(pod, kind, facts, client)
            case ("life", int(pod)):
                for record in records_of(pod, agent.now_ns).values():
                    agent.take(record)
            case ("unreachable", int(pod), int(seconds)):
                for _ in range(seconds):
                    agent.count(pod, Kind.UNREACHABLE, Fact.DELETED | Fact.GONE, 1)
                    agent.tick()
            case ("wait", int(seconds)):
                for _ in range(seconds):
                    agent.tick()
    agent.tick()
    agent.recorder.close(agent.now_ns)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([1.0, 5.0, 40.0, 600.0]))
def test_a_replay_gives_the_metrics_of_the_agent(steps: list[Step], retention_seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording"
        agent = PlayedAgent(file, 100_000_000, retention_seconds)
        play(agent, steps)
        assert page_of(replayed(file)) == agent.page()


def test_drops_that_go_on_while_their_pod_is_forgotten_stay_its_workloads(tmp_path: Path) -> None:
    agent = PlayedAgent(tmp_path / "recording", 100_000_000, 5.0)
    play(agent, [("life", 0), ("unreachable", 0, 10)])
    assert page_of(replayed(tmp_path / "recording")) == agent.page()


def pods_in(page: str) -> Iterator[str]:
    """The lines about single pods: those of workloads and histograms begin anew in a second file."""
    return (line for line in page.splitlines() if line.startswith("lastcall_pod_"))


@settings(max_examples=60, deadline=None)
@given(STEPS, STEPS)
def test_the_second_file_alone_tells_the_same_of_every_pod(before: list[Step], after: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording"
        agent = PlayedAgent(file, 1000, 600.0)
        play(agent, [*before, *(("life", 0), ("wait", 1)) * 4, *after])
        assert (Path(folder) / "recording.1").exists()
        player = replayed(file)
        assert list(pods_in(page_of(player))) == list(pods_in(agent.page()))
        assert player.observation.terminations(player.counts) == agent.terminations()


def test_what_kube_proxy_did_is_in_the_second_file_too(tmp_path: Path) -> None:
    agent = PlayedAgent(tmp_path / "recording", 1000, 600.0)
    synced: list[Step] = [("wait", 1), ("record", 0, "committed"), ("record", 0, "synced"), ("wait", 60)]
    play(agent, [("life", 0), *synced * 4])
    (end,) = replayed(tmp_path / "recording").terminations()
    assert end.stages[Stage.KUBE_PROXY].seconds == pytest.approx(1.0, abs=0.001)
    assert (end,) == agent.terminations()


def test_ends_that_the_agent_had_forgotten_are_told_too(tmp_path: Path) -> None:
    agent = PlayedAgent(tmp_path / "recording", 100_000_000, 5.0)
    play(agent, [("life", 0), ("unreachable", 0, 3), ("wait", 70), ("life", 1), ("wait", 1)])
    assert [end.uid for end in agent.terminations()] == ["uid-1"]
    first, second = replayed(tmp_path / "recording").terminations()
    assert (first.uid, second.uid) == ("uid-0", "uid-1")
    assert first.dropped == {(Kind.UNREACHABLE, Phase.GONE): 3}
