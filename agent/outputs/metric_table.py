"""The one table of all metrics: name, type, labels, help. The names and labels are a contract."""

from dataclasses import dataclass
from enum import Enum


class MetricType(Enum):
    """As Prometheus names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. `name` is the full name; a counter's ends in _total."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()


_WORKLOAD = ("namespace", "workload_kind", "workload")
_POD = ("namespace", "pod", "workload_kind", "workload")

POD_DROPPED = Metric(
    "lastcall_pod_dropped_connections_total",
    MetricType.COUNTER,
    "Connections that the pod refused, reset, cut or never answered, each once, by kind and phase.",
    (*_POD, "kind", "phase"),
)
POD_LATE = Metric(
    "lastcall_pod_late_connections_total",
    MetricType.COUNTER,
    "New connections that the pod still accepted while it was dying.",
    (*_POD, "phase"),
)
POD_LAG = Metric(
    "lastcall_pod_propagation_lag_seconds",
    MetricType.GAUGE,
    "How long after the deletion request new connections still came; absent while none came, and where they "
    "were sent by design.",
    _POD,
)
POD_TERMINATION = Metric(
    "lastcall_pod_termination_timestamp_seconds",
    MetricType.GAUGE,
    "When each step of the pod's termination happened, in seconds since the epoch; absent until it did.",
    (*_POD, "event"),
)
DROPPED = Metric(
    "lastcall_dropped_connections_total",
    MetricType.COUNTER,
    "Connections that the workload's pods on this node refused, reset, cut or never answered.",
    (*_WORKLOAD, "kind", "phase"),
)
LATE = Metric(
    "lastcall_late_connections_total",
    MetricType.COUNTER,
    "New connections that dying pods of the workload on this node still accepted.",
    (*_WORKLOAD, "phase"),
)
LAG = Metric(
    "lastcall_propagation_lag_seconds",
    MetricType.HISTOGRAM,
    "How long after a deletion request the news arrived at each stage.",
    (*_WORKLOAD, "stage"),
)
DROPPED_BY_SOURCE = Metric(
    "lastcall_dropped_connections_by_source_total",
    MetricType.COUNTER,
    "Dropped connections by where they came from; a bounded number of sources, the rest is `other`.",
    (*_WORKLOAD, "source_kind", "source"),
)
KUBE_PROXY_UP = Metric(
    "lastcall_kube_proxy_up", MetricType.GAUGE, "Whether this node's kube-proxy answers with its metrics."
)
KUBE_PROXY_LAST_SYNC = Metric(
    "lastcall_kube_proxy_last_sync_timestamp_seconds",
    MetricType.GAUGE,
    "When kube-proxy last wrote this node's rules, in seconds since the epoch.",
)
KUBE_PROXY_SYNC_LAG = Metric(
    "lastcall_kube_proxy_sync_lag_seconds",
    MetricType.HISTOGRAM,
    "From kube-proxy's taking note of a change to its rules being written.",
)
UNATTRIBUTED = Metric(
    "lastcall_unattributed_dropped_connections_total",
    MetricType.COUNTER,
    "Dropped connections in network namespaces whose pod is not known, or was not when they were read.",
    ("kind",),
)
EVENTS = Metric(
    "lastcall_events_total", MetricType.COUNTER, "What each kernel hook has delivered or counted.", ("hook",)
)
EVENTS_LOST = Metric(
    "lastcall_events_lost_total",
    MetricType.COUNTER,
    "What a full map or ring buffer did not take: counts are too low by at most this.",
    ("hook",),
)
HOOK_ATTACHED = Metric(
    "lastcall_hook_attached",
    MetricType.GAUGE,
    "Whether a kernel hook is attached (agent doctor says what is missed where it is not).",
    ("hook", "variant"),
)
PROGRAM_SECONDS = Metric(
    "lastcall_program_run_seconds_total",
    MetricType.COUNTER,
    "Time that a BPF program has run, while kernel.bpf_stats_enabled is 1.",
    ("program",),
)
PROGRAM_RUNS = Metric(
    "lastcall_program_runs_total",
    MetricType.COUNTER,
    "How often a BPF program has run, while kernel.bpf_stats_enabled is 1.",
    ("program",),
)
WATCH_RESTARTS = Metric(
    "lastcall_watch_restarts_total",
    MetricType.COUNTER,
    "How often a watch of the API server failed and was made again.",
    ("resource",),
)
LAST_WATCH_EVENT = Metric(
    "lastcall_last_watch_event_timestamp_seconds",
    MetricType.GAUGE,
    "When the API server last said anything of what is watched, in seconds since the epoch; absent before it "
    "did, and while nothing is watched.",
    ("resource",),
)
BUILD_INFO = Metric("lastcall_build_info", MetricType.GAUGE, "The agent's version.", ("version",))

METRICS = (
    POD_DROPPED,
    POD_LATE,
    POD_LAG,
    POD_TERMINATION,
    DROPPED,
    LATE,
    LAG,
    DROPPED_BY_SOURCE,
    KUBE_PROXY_UP,
    KUBE_PROXY_LAST_SYNC,
    KUBE_PROXY_SYNC_LAG,
    UNATTRIBUTED,
    EVENTS,
    EVENTS_LOST,
    HOOK_ATTACHED,
    PROGRAM_SECONDS,
    PROGRAM_RUNS,
    WATCH_RESTARTS,
    LAST_WATCH_EVENT,
    BUILD_INFO,
)
