"""The scenarios, one for each failure of the field."""

from dataclasses import replace

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.controlplane.pod_template import ExecHook, HttpProbe, SleepHook
from agent.lab.node.outcome import Via
from agent.lab.node.server import OnStop, ServerSettings
from agent.lab.scenario import REPLACE, Event, Lag, Scenario, Stream, Workload

_EVERYONE = (
    Stream(Via.SERVICE, "GET", rate=30),
    Stream(Via.SERVICE, "POST", rate=15),
    Stream(Via.INGRESS, "GET", rate=30),
    Stream(Via.INGRESS, "POST", rate=15),
)
_DIRECT = (Stream(Via.SERVICE, "GET", rate=30), Stream(Via.SERVICE, "POST", rate=15))

_EXITS = ServerSettings(on_stop=OnStop.EXIT, answer_after_ms=20)
_DRAINS = ServerSettings(on_stop=OnStop.DRAIN, answer_after_ms=20, close_idle_after_s=1.0)

_AFTER_THE_STOP_SIGNAL = frozenset({Phase.STOPPING, Phase.CLOSED, Phase.EXITED, Phase.GONE})

_CLEAN = Scenario(
    name="clean",
    happens="preStop outlasts the propagation lag and the server drains: nobody notices the update.",
    before=Workload(_DRAINS, SleepHook(2)),
    load=(*_EVERYONE, Stream(Via.SERVICE, "GET", rate=40, keep_alive=10)),
)

_EXITS_AT_ONCE = Scenario(
    name="exits-at-once",
    happens="No preStop, and the server exits on SIGTERM while kube-proxy and nginx still send to it.",
    before=Workload(_EXITS),
    load=_EVERYONE,
    shows=frozenset({Kind.REFUSED}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="preStop sleep 2",
    after=Workload(_EXITS, SleepHook(2)),
)

_PRESTOP_TOO_SHORT = Scenario(
    name="prestop-too-short",
    happens="preStop sleeps 1 s: enough for kube-proxy, but nginx learns of the deletion after 2.2 s.",
    before=Workload(_DRAINS, SleepHook(1)),
    load=_EVERYONE,
    shows=frozenset({Kind.REFUSED}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="preStop sleep 3",
    after=Workload(_DRAINS, SleepHook(3)),
    lag=Lag(kube_proxy=0.3, ingress=2.2),
)

_NETWORK_GONE = Scenario(
    name="network-gone",
    happens="kube-proxy's rules are 3 s late and the pod's network is removed before: SYNs into nothing.",
    before=Workload(_DRAINS),
    load=_DIRECT,
    shows=frozenset({Kind.REFUSED, Kind.UNREACHABLE}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="preStop sleep 4",
    after=Workload(_DRAINS, SleepHook(4)),
    event=Event.ONE_POD_REPLACED,
    lag=Lag(kube_proxy=3.0),
)

_CLOSES_IDLE = replace(_DRAINS, close_idle_after_s=0.0, exit_after_s=1.0)

_KEEPALIVE_REUSE = Scenario(
    name="keepalive-reuse",
    happens="On SIGTERM the server closes idle keep-alive connections that clients are about to reuse.",
    before=Workload(_CLOSES_IDLE, SleepHook(1)),
    load=(Stream(Via.SERVICE, "POST", rate=60, keep_alive=20, check_idle=False),),
    shows=frozenset({Kind.STALE}),
    phases=frozenset({Phase.CLOSED}),
    fix="answer one last request with Connection: close before closing",
    after=Workload(replace(_CLOSES_IDLE, close_idle_after_s=1.0), SleepHook(1)),
)

_SLEEP_INSTEAD_OF_DRAIN = Scenario(
    name="sleep-instead-of-drain",
    happens="On SIGTERM the server stops working, sleeps 1 s and exits with requests that it has read.",
    before=Workload(ServerSettings(on_stop=OnStop.SLEEP, exit_after_s=1.0, answer_after_ms=20), SleepHook(1)),
    load=(*_DIRECT, Stream(Via.SERVICE, "GET", rate=40, keep_alive=10)),
    shows=frozenset({Kind.UNANSWERED}),
    phases=frozenset({Phase.CLOSED}),
    fix="finish what is in flight, then exit",
    after=Workload(_DRAINS, SleepHook(1)),
)

_LONG_REQUESTS = (Stream(Via.SERVICE, "GET", rate=4, keep_alive=12, path="/slow?ms=3000"),)

_GRACE_TOO_SHORT = Scenario(
    name="grace-too-short",
    happens="preStop takes 1 s and requests 3 s, but SIGKILL comes 3 s after the deletion.",
    before=Workload(_DRAINS, SleepHook(1), grace_seconds=3),
    load=_LONG_REQUESTS,
    shows=frozenset({Kind.UNANSWERED}),
    phases=frozenset({Phase.CLOSED}),
    fix="terminationGracePeriodSeconds 10",
    after=Workload(_DRAINS, SleepHook(1), grace_seconds=10),
    warm_up_seconds=3.2,
)

_ACCEPT_QUEUE = Scenario(
    name="accept-queue",
    happens="On SIGTERM the server stops accepting and closes its listener 0.5 s later: the queue is reset.",
    before=Workload(ServerSettings(on_stop=OnStop.HOLD, exit_after_s=0.5, answer_after_ms=20)),
    load=_DIRECT,
    shows=frozenset({Kind.UNACCEPTED}),
    phases=frozenset({Phase.STOPPING}),
    fix="preStop sleep 2",
    after=Workload(ServerSettings(on_stop=OnStop.HOLD, exit_after_s=0.5, answer_after_ms=20), SleepHook(2)),
)

_SIGTERM_IGNORED = Scenario(
    name="sigterm-ignored",
    happens="PID 1 is a shell that ignores SIGTERM: the server works on until SIGKILL cuts it off.",
    before=Workload(replace(_DRAINS, on_stop=OnStop.IGNORE), grace_seconds=3, shell=True),
    load=(Stream(Via.SERVICE, "GET", rate=40, keep_alive=16, path="/slow?ms=300"),),
    shows=frozenset({Kind.UNANSWERED}),
    phases=frozenset({Phase.STOPPING}),
    fix="start the server with exec, so that it is PID 1 and drains",
    after=Workload(_DRAINS, SleepHook(1), grace_seconds=10),
)

_PRESTOP_FAILS = Scenario(
    name="prestop-fails",
    happens="The image has no sleep: the exec hook fails at once and SIGTERM follows immediately.",
    before=Workload(_DRAINS, ExecHook(("/bin/sh", "-c", "exec /usr/local/bin/no-such-sleep 2"))),
    load=_EVERYONE,
    shows=frozenset({Kind.REFUSED}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="preStop sleep 2, which needs nothing in the image",
    after=Workload(_DRAINS, SleepHook(2)),
)

_COLD_START = Scenario(
    name="cold-start",
    happens="Without a readiness probe new pods get traffic 1 s before they listen.",
    before=Workload(replace(_DRAINS, bind_after_s=1.0), SleepHook(1), readiness=None),
    load=_DIRECT,
    shows=frozenset({Kind.REFUSED}),
    phases=frozenset({Phase.STARTING}),
    fix="add a readiness probe",
    after=Workload(replace(_DRAINS, bind_after_s=1.0), SleepHook(1)),
)

_CLEANS_UP = replace(_DRAINS, close_idle_after_s=0.0, exit_after_s=0.5)

_CONTAINER_RESTART = Scenario(
    name="container-restart",
    happens="The liveness probe fails once: the container is restarted under load, its pod not deleted.",
    before=Workload(_CLEANS_UP, liveness=HttpProbe("/healthz")),
    load=_DIRECT,
    shows=frozenset({Kind.REFUSED}),
    phases=frozenset({Phase.RESTARTING}),
    fix="failureThreshold 30: a liveness probe that outlasts a hiccup",
    after=Workload(_CLEANS_UP, liveness=HttpProbe("/healthz", failure_threshold=30)),
    event=Event.LIVENESS_FAILURE,
)

_BUSY_EXITS = replace(_EXITS, answer_after_ms=100)

_RETRIED_GET = Scenario(
    name="retried-get",
    happens="nginx retries a GET that the dying pod cut, silently; a POST becomes the user's 502.",
    before=Workload(_BUSY_EXITS),
    load=(Stream(Via.INGRESS, "GET", rate=60), Stream(Via.INGRESS, "POST", rate=60)),
    shows=frozenset({Kind.UNANSWERED}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="preStop sleep 2",
    after=Workload(_BUSY_EXITS, SleepHook(2)),
    event=Event.ONE_POD_REPLACED,
)

_SLOW_START = replace(_DRAINS, bind_after_s=2.0)

_SINGLE_REPLICA = Scenario(
    name="single-replica",
    happens="The only pod is replaced: it serves on while terminating, by design, and then nobody does.",
    before=Workload(_SLOW_START, SleepHook(1), replicas=1, strategy=REPLACE),
    load=_DIRECT,
    shows=frozenset({Kind.REFUSED}),
    phases=_AFTER_THE_STOP_SIGNAL,
    fix="two replicas, replaced one by one",
    after=Workload(_SLOW_START, SleepHook(1)),
)

SCENARIOS = (
    _CLEAN,
    _EXITS_AT_ONCE,
    _PRESTOP_TOO_SHORT,
    _NETWORK_GONE,
    _KEEPALIVE_REUSE,
    _SLEEP_INSTEAD_OF_DRAIN,
    _GRACE_TOO_SHORT,
    _ACCEPT_QUEUE,
    _SIGTERM_IGNORED,
    _PRESTOP_FAILS,
    _COLD_START,
    _CONTAINER_RESTART,
    _RETRIED_GET,
    _SINGLE_REPLICA,
)
"""All scenarios, the harmless one first."""

COMMONEST = (_EXITS_AT_ONCE, _PRESTOP_TOO_SHORT, _NETWORK_GONE, _RETRIED_GET)
"""What is played unless others are asked for."""
