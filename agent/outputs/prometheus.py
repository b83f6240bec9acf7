"""A snapshot as Prometheus metric families."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agent.core.kinds import Kind
from agent.core.ledger import LAG_BUCKETS, Histogram
from agent.core.life import PodLife
from agent.core.phases import Phase
from agent.core.snapshot import Snapshot
from agent.core.tally import Tally, WorkloadKey, pod_key_of
from agent.outputs import metric_table as table
from agent.outputs.metric_table import Metric

Labels = tuple[str, ...]
Sample = tuple[Labels, float]

ALWAYS_SHOWN = (
    (Kind.REFUSED, Phase.STARTING),
    (Kind.REFUSED, Phase.CLOSED),
    (Kind.REFUSED, Phase.EXITED),
    (Kind.UNREACHABLE, Phase.GONE),
    (Kind.UNANSWERED, Phase.STOPPING),
    (Kind.UNANSWERED, Phase.CLOSED),
    (Kind.UNREAD, Phase.STOPPING),
    (Kind.UNACCEPTED, Phase.STOPPING),
    (Kind.STALE, Phase.CLOSED),
)
"""Series at 0 from the moment a pod is known: a counter that first appears at 37 has no increase."""

DYING_PHASES = tuple(phase for phase in Phase if phase.dying and phase is not Phase.GONE)


class AgentCollector(Collector):
    """Asks for a snapshot at every scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot], version: str) -> None:
        self._snapshot = snapshot
        self._version = version

    def collect(self) -> Iterator[Family]:
        """Every family of the table, with what is known now."""
        snapshot = self._snapshot()
        yield from _pods(snapshot)
        yield from _workloads(snapshot)
        yield from _kube_proxy(snapshot)
        yield from _own_state(snapshot)
        yield _gauge(table.BUILD_INFO, [((self._version,), 1)])

    def describe(self) -> Iterable[Family]:
        """Nothing is known before the first scrape; without this a registry would scrape at once."""
        return ()


def _pods(snapshot: Snapshot) -> Iterator[Family]:
    """A pod that is made again under its name goes on with the series of the one before (StatefulSets).

    Its counters add up, so that they do not fall; what is told of a moment is told of the newest pod only.
    """
    dropped: list[Sample] = []
    late: list[Sample] = []
    lags: list[Sample] = []
    moments: list[Sample] = []
    newest = {pod_key_of(life): life for life in snapshot.lives}
    tallies = {key: Tally() for key in newest}
    for life in snapshot.lives:
        tallies[pod_key_of(life)].merge(snapshot.reading.pods.get(life.pod.uid, Tally()))
    for key, life in newest.items():
        labels = (key.namespace, key.name, key.workload.kind, key.workload.name)
        tally = tallies[key]
        tally.merge(snapshot.reading.forgotten.get(key, Tally()))
        dropped += _dropped(labels, tally)
        late += _late(labels, tally)
        lags += _lag(labels, life, snapshot.reading.pods.get(life.pod.uid, Tally()))
        moments += [
            ((*labels, boundary.value), moment.at_ns / 1e9) for boundary, moment in life.boundaries.items()
        ]
    yield _counter(table.POD_DROPPED, dropped)
    yield _counter(table.POD_LATE, late)
    yield _gauge(table.POD_LAG, lags)
    yield _gauge(table.POD_TERMINATION, moments)


def _lag(labels: Labels, life: PodLife, tally: Tally) -> Iterator[Sample]:
    if tally.last_attempt_ns is not None and not life.served_by_design:
        seconds = life.seconds_since_deletion(tally.last_attempt_ns)
        if seconds is not None:
            yield labels, seconds


def _dropped(labels: Labels, tally: Tally) -> Iterator[Sample]:
    for kind, phase in dict.fromkeys((*ALWAYS_SHOWN, *tally.dropped)):
        yield (*labels, kind.value, phase.value), tally.dropped[kind, phase]


def _late(labels: Labels, tally: Tally) -> Iterator[Sample]:
    for phase in dict.fromkeys((*DYING_PHASES, *tally.late)):
        yield (*labels, phase.value), tally.late[phase]


def _workload_labels(key: WorkloadKey) -> Labels:
    return key.namespace, key.workload.kind, key.workload.name


def _workloads(snapshot: Snapshot) -> Iterator[Family]:
    dropped: list[Sample] = []
    late: list[Sample] = []
    sources: dict[Labels, float] = {}
    for key, tally in snapshot.reading.workloads.items():
        labels = _workload_labels(key)
        dropped += _dropped(labels, tally)
        late += _late(labels, tally)
    for key, by_source in snapshot.reading.sources.items():
        for name, connections in by_source.items():
            source = (name.kind, name.name) if name else ("other", "other")
            sources[*_workload_labels(key), *source] = connections
    yield _counter(table.DROPPED, dropped)
    yield _counter(table.LATE, late)
    lags = {(*_workload_labels(key), stage.value): lag for (key, stage), lag in snapshot.lags.items()}
    yield _histogram(table.LAG, lags)
    yield _counter(table.DROPPED_BY_SOURCE, sources.items())
    unattributed = [((kind.value,), snapshot.reading.unattributed[kind]) for kind in Kind]
    yield _counter(table.UNATTRIBUTED, unattributed)


def _kube_proxy(snapshot: Snapshot) -> Iterator[Family]:
    state = snapshot.kube_proxy
    if state is not None:
        yield _gauge(table.KUBE_PROXY_UP, [((), float(state.up))])
    if state is not None and state.synced_ns is not None:
        yield _gauge(table.KUBE_PROXY_LAST_SYNC, [((), state.synced_ns / 1e9)])
    yield _histogram(table.KUBE_PROXY_SYNC_LAG, {(): snapshot.kube_proxy_lag})


def _own_state(snapshot: Snapshot) -> Iterator[Family]:
    counts = snapshot.hook_counts.items()
    yield _counter(table.EVENTS, [((hook,), count.events) for hook, count in counts])
    yield _counter(table.EVENTS_LOST, [((hook,), count.lost) for hook, count in counts])
    yield _gauge(table.HOOK_ATTACHED, [((hook.name, hook.variant), hook.attached) for hook in snapshot.hooks])
    if any(program.runs for program in snapshot.program_runs):
        runs = snapshot.program_runs
        yield _counter(table.PROGRAM_SECONDS, [((program.program,), program.seconds) for program in runs])
        yield _counter(table.PROGRAM_RUNS, [((program.program,), program.runs) for program in runs])
    yield _counter(table.WATCH_RESTARTS, [((watch.resource,), watch.restarts) for watch in snapshot.watches])
    heard = [(watch.resource, watch.last_event_ns) for watch in snapshot.watches]
    yield _gauge(
        table.LAST_WATCH_EVENT,
        [((resource,), at_ns / 1e9) for resource, at_ns in heard if at_ns is not None],
    )


def _counter(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _gauge(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, histograms: Mapping[Labels, Histogram]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = (*(str(float(bound)) for bound in LAG_BUCKETS), "+Inf")
    for labels, histogram in histograms.items():
        below = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip(bounds, histogram.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(labels, buckets, histogram.total_seconds)
    return family
