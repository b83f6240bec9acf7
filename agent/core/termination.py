"""The end of a pod, or of a container of a pod that stays, as one object: what reports are made of."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from functools import partial

from agent.core.boundaries import Boundary, Moment
from agent.core.container_run import ContainerRun, Exit, SentSignal
from agent.core.kinds import Kind
from agent.core.life import PodLife, Stage, StageWitness
from agent.core.phase_spans import PhaseSpan, spans_of
from agent.core.phases import Phase
from agent.core.prestop import PreStopOutcome, outcome_of
from agent.core.reason import Reason, reason_of_pod, reason_of_run
from agent.core.records import KubeProxyState, PreStop, Workload
from agent.core.tally import Tally


class Scope(Enum):
    """What ended."""

    POD = "pod"
    CONTAINER = "container"
    """One container, which the kubelet starts again: the pod stays."""


@dataclass(frozen=True, slots=True)
class ContainerTermination:
    """How one run of a container ended."""

    name: str | None
    container_id: str | None
    sidecar: bool
    prestop: PreStop | None
    prestop_outcome: PreStopOutcome
    stop_signal: SentSignal | None
    exit: Exit | None
    boundaries: Mapping[Boundary, Moment]
    ports_closed: Mapping[int, Moment]


@dataclass(frozen=True, slots=True)
class StageResult:
    """When the news of a deletion arrived at a stage, or why that is not known."""

    seconds: float | None
    witness: StageWitness | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Termination:
    """One end. `dropped` and `late` are None where no kernel side watched the pod's connections.

    Those of a container's end are the pod's in phase `restarting`; where the pod restarted more than once
    they cannot be told apart, and are None.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    workload: Workload
    scope: Scope
    reason: Reason
    grace_seconds: float
    over: bool
    boundaries: Mapping[Boundary, Moment]
    containers: tuple[ContainerTermination, ...]
    phases: tuple[PhaseSpan, ...]
    stages: Mapping[Stage, StageResult]
    served_by_design: bool
    dropped: Mapping[tuple[Kind, Phase], int] | None
    late: Mapping[Phase, int] | None

    @property
    def began_ns(self) -> int:
        """What its times count from: the request for the deletion or, without one, what was seen first."""
        requested = self.boundaries.get(Boundary.DELETION_REQUESTED)
        if requested is not None:
            return requested.at_ns
        return min((moment.at_ns for moment in self.boundaries.values()), default=0)


def terminations(
    lives: Iterable[PodLife], tallies: Mapping[str, Tally], kube_proxy: KubeProxyState | None
) -> tuple[Termination, ...]:
    """The ends of all pods that are known, and of their containers, in the order in which they began.

    `tallies` are the counts by pod UID; `kube_proxy` is its last reading.
    """
    ends = [
        end
        for life in lives
        for end in _terminations_of(life, tallies.get(life.pod.uid, Tally()), kube_proxy)
    ]
    return tuple(sorted(ends, key=lambda end: (end.began_ns, end.namespace, end.pod)))


def _terminations_of(life: PodLife, tally: Tally, kube_proxy: KubeProxyState | None) -> Iterable[Termination]:
    finished = life.pod.finished and any(run.ended for run in life.present_runs)
    with_pod = life.ending_runs if life.deleted or finished else []
    ids = {id(run) for run in with_pod}
    alone = [run for run in life.runs if id(run) not in ids and run.ending and run.name is not None]
    for run in alone:
        yield _of_container(life, run, tally if len(alone) == 1 else None)
    if life.deleted or finished:
        yield _of_pod(life, with_pod, tally, kube_proxy)


def _of(life: PodLife) -> partial[Termination]:
    """A termination of this pod, of which the rest is still to be said."""
    pod = life.pod
    return partial(
        Termination,
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node,
        workload=pod.workload,
        grace_seconds=pod.grace_seconds,
    )


def _of_pod(
    life: PodLife, runs: list[ContainerRun], tally: Tally, kube_proxy: KubeProxyState | None
) -> Termination:
    watched = life.netns is not None
    # Nobody asked for the end of a pod that has finished by itself.
    phases = {phase for phase in Phase if phase.dying} if life.deleted else {Phase.RESTARTING}
    return _of(life)(
        scope=Scope.POD,
        reason=reason_of_pod(life),
        over=life.over if life.deleted else all(run.ended for run in life.present_runs),
        boundaries=_in_order(life.boundaries),
        containers=tuple(_container(life, run) for run in runs),
        phases=spans_of(life.boundaries, life.pod.declares_prestop) if life.deleted else (),
        stages={
            Stage.ENDPOINTSLICE: _endpointslice_stage(life),
            Stage.KUBE_PROXY: _kube_proxy_stage(life, kube_proxy),
            Stage.TRAFFIC: _traffic_stage(life, tally),
        }
        if life.deleted
        else {},
        served_by_design=life.served_by_design,
        dropped=_dropped(tally, phases) if watched else None,
        late=dict(tally.late) if watched else None,
    )


def _of_container(life: PodLife, run: ContainerRun, tally: Tally | None) -> Termination:
    return _of(life)(
        scope=Scope.CONTAINER,
        reason=reason_of_run(run),
        over=run.ended,
        boundaries=_in_order(run.boundaries),
        containers=(_container(life, run),),
        phases=(PhaseSpan(Phase.RESTARTING, _restarting_since(run), None),),
        stages={},
        served_by_design=False,
        dropped=_dropped(tally, {Phase.RESTARTING}) if life.netns is not None and tally is not None else None,
        late=None,
    )


def _restarting_since(run: ContainerRun) -> Moment | None:
    return run.boundaries.get(Boundary.STOP_SIGNAL) or run.boundaries.get(Boundary.EXITED)


def _dropped(tally: Tally, phases: Set[Phase]) -> dict[tuple[Kind, Phase], int]:
    return {(kind, phase): n for (kind, phase), n in tally.dropped.items() if phase in phases}


def _container(life: PodLife, run: ContainerRun) -> ContainerTermination:
    declared = life.container_of(run)
    hook = declared.prestop if declared else None
    return ContainerTermination(
        name=declared.name if declared else run.name,
        container_id=run.container_id,
        sidecar=declared.sidecar if declared else False,
        prestop=hook,
        prestop_outcome=outcome_of(hook, run, life.pod.grace_seconds),
        stop_signal=run.stop_signal,
        exit=run.exit,
        boundaries=_in_order(run.boundaries),
        ports_closed=dict(run.ports_closed),
    )


def _in_order(boundaries: Mapping[Boundary, Moment]) -> dict[Boundary, Moment]:
    return {boundary: boundaries[boundary] for boundary in Boundary if boundary in boundaries}


def _endpointslice_stage(life: PodLife) -> StageResult:
    known = _known_stage(life, Stage.ENDPOINTSLICE)
    return known or StageResult(None, missing="no EndpointSlice told that the pod's endpoint terminates")


def _kube_proxy_stage(life: PodLife, kube_proxy: KubeProxyState | None) -> StageResult:
    known = _known_stage(life, Stage.KUBE_PROXY)
    if known is not None:
        return known
    if kube_proxy is None:
        return StageResult(None, missing="nobody watched this node's kube-proxy")
    if not kube_proxy.up:
        return StageResult(None, missing="no kube-proxy answers on this node")
    if life.endpoint_seen_ns is None:
        return StageResult(None, missing="no EndpointSlice told that the pod's endpoint terminates")
    return StageResult(None, missing="kube-proxy has not told that it had written the change")


def _known_stage(life: PodLife, stage: Stage) -> StageResult | None:
    seconds = life.stage_seconds.get(stage)
    return None if seconds is None else StageResult(seconds, life.stage_witnesses.get(stage))


def _traffic_stage(life: PodLife, tally: Tally) -> StageResult:
    if life.netns is None:
        return StageResult(None, missing="nobody watched the pod's connections")
    if life.served_by_design:
        return StageResult(None, missing="traffic was sent to the dying pod by design")
    if tally.last_attempt_ns is None:
        return StageResult(None, missing="no new connection came after the deletion")
    return StageResult(life.seconds_since_deletion(tally.last_attempt_ns))
