"""Playing one variant of a scenario: a workload under load, what happens to it, and both sides' counts."""

import time
import urllib.request
from dataclasses import dataclass

from agent.lab.client_counts import ClientCounts, client_counts
from agent.lab.controlplane.pod_life import PodLife
from agent.lab.controlplane.pod_template import PodTemplate
from agent.lab.errors import LabError
from agent.lab.lastcall_counts import LastcallCounts, lastcall_counts
from agent.lab.late_connections import LateTruth, accepted_from, late_truth
from agent.lab.node.ingress import Ingress
from agent.lab.node.nginx_logs import LogsDisagree
from agent.lab.node.outcome import FailedConnection, Outcome, Via
from agent.lab.scenario import Event, Scenario, Variant
from agent.lab.stage import Stage
from agent.lab.streams import Door, StreamResult, Streams
from agent.lab.true_lag import TrueLag, true_lag
from agent.lab.workload_setup import RunningWorkload, running_workload

_AFTER_LAST_CHANGE_SECONDS = 0.4
_RESTART_SECONDS = 10.0
_UNDISTURBED_SECONDS = 3.0
_SETTLE_STEP_SECONDS = 0.3
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Played:
    """What one play showed. `lastcall` is None only in tests that leave the agent out.

    `late` holds every pod that was deleted; `lag` is known if there was only one.
    """

    scenario: Scenario
    variant: Variant
    streams: tuple[StreamResult, ...]
    clients: ClientCounts
    upstream_failures: tuple[FailedConnection, ...]
    lastcall: LastcallCounts | None
    late: dict[str, LateTruth]
    lag: TrueLag | None
    seconds: float


def play(stage: Stage, scenario: Scenario, variant: Variant, seed: int, *, keep: bool) -> Played:
    """Play it in a namespace of its own; with `keep` its pods stay afterwards.

    Raises LabError (also for a void run), NodeError and TimeoutError.
    """
    started = time.monotonic()
    with running_workload(stage, scenario, variant, seed, keep=keep) as workload:
        doors = {Via.SERVICE: Door(workload.service.v4, workload.service.port)}
        if workload.ingress is not None:
            doors[Via.INGRESS] = Door(workload.ingress.v4, workload.ingress.port)
        streams = Streams(stage.node, stage.clients, scenario.load, doors, seed)
        time.sleep(scenario.warm_up_seconds)
        _disturb(workload, scenario, variant)
        results = streams.finish()
        upstream: list[FailedConnection] = []
        if workload.ingress is not None:
            upstream = _upstream_failures(workload.ingress)
        own = [record for result in results for record in (*result.load.failures, *result.load.delayed)]
        clients = client_counts(
            sum(result.load.sent for result in results),
            sum(result.load.answered for result in results),
            [*own, *upstream],
        )
        if clients.by_outcome.get(Outcome.OWN_ERROR):
            raise LabError(f"{scenario.name}: a load generator ran out of ports or descriptors; run it again")
        late, lag = _deaths(stage, workload, [*own, *upstream])
        counted = _settled_counts(stage, workload.namespace)
        seconds = time.monotonic() - started
        return Played(scenario, variant, results, clients, tuple(upstream), counted, late, lag, seconds)


def _deaths(
    stage: Stage, workload: RunningWorkload, failures: list[FailedConnection]
) -> tuple[dict[str, LateTruth], TrueLag | None]:
    """What dying pods still accepted, by pod, and the propagation lag if only one died."""
    late: dict[str, LateTruth] = {}
    lags: list[TrueLag | None] = []
    for pod in workload.deployment.deleted:
        name, deleted_ns = pod.identity.name, pod.deletion_requested_ns
        if deleted_ns is not None:
            accepted = accepted_from(workload.connection_log(name), stage.client_addresses)
            late[name] = late_truth(accepted, deleted_ns)
            lags.append(true_lag(name, deleted_ns, accepted, failures))
    return late, lags[0] if len(lags) == 1 else None


def _upstream_failures(ingress: Ingress) -> list[FailedConnection]:
    """What nginx, as the pods' client, counted. Raises LabError if its logs contradict each other."""
    ingress.stop()
    try:
        return ingress.failures()
    except LogsDisagree as error:
        raise LabError(f"nginx's logs cannot be counted: {error}") from error


def _disturb(workload: RunningWorkload, scenario: Scenario, variant: Variant) -> None:
    """Let the scenario's event happen and wait until its effects are over."""
    wanted = scenario.workload(variant)
    if scenario.event is Event.LIVENESS_FAILURE:
        _fail_liveness(workload.deployment.pods[0], workload.template, restarts=variant is Variant.BEFORE)
    elif scenario.event is Event.ONE_POD_REPLACED:
        workload.deployment.replace_one(workload.template, wanted.strategy)
    else:
        workload.deployment.roll(workload.template, wanted.strategy)
    rolled = time.monotonic()
    workload.deployment.wait_deleted()
    lag = max(scenario.lag.kube_proxy, scenario.lag.ingress)
    time.sleep(max(rolled + lag + _AFTER_LAST_CHANGE_SECONDS - time.monotonic(), 0.0))


def _fail_liveness(pod: PodLife, template: PodTemplate, *, restarts: bool) -> None:
    """Make the pod's health checks hang, and see the container restarted or not."""
    with urllib.request.urlopen(f"http://{pod.address}:{template.port}/wedge", timeout=5) as answer:
        answer.read()
    if restarts:
        pod.wait_restarted(_RESTART_SECONDS)
        pod.wait_ready(_RESTART_SECONDS)
    else:
        time.sleep(_UNDISTURBED_SECONDS)


def _settled_counts(stage: Stage, namespace: str) -> LastcallCounts | None:
    """The agent's counts once two readings agree. Raises LabError if they do not come to rest."""
    if stage.agent is None:
        return None
    deadline = time.monotonic() + _SETTLE_SECONDS
    before = lastcall_counts(stage.agent.metrics(), namespace)
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_STEP_SECONDS)
        now = lastcall_counts(stage.agent.metrics(), namespace)
        if (now.dropped, now.late) == (before.dropped, before.late):
            return now
        before = now
    raise LabError(f"the agent's counts still change {_SETTLE_SECONDS:.0f} s after the last request")
