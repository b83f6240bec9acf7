"""How long the news of a deletion takes to the EndpointSlices, and to the rules that kube-proxy writes."""

from collections.abc import Iterable

from agent.core.boundaries import Boundary
from agent.core.life import PodLife, Stage, StageWitness
from agent.core.records import EndpointTerminating, KubeProxyState, NftablesCommitted

KUBE_PROXY_COMMITS_AS = frozenset({"nft", "iptables-restor", "ip6tables-resto", "kube-proxy"})
"""Names of the processes by which kube-proxy commits rules (docs/kinds-and-phases.md, Propagation lag)."""

ONE_SYNC_NS = 100_000_000
"""A sync of kube-proxy commits table after table, and notes its end some milliseconds after the last."""

KUBE_PROXY_HEARS_NS = 100_000_000
"""How much later than the agent kube-proxy may hear of a slice: only then its having nothing to do means that
it has done it."""


def endpoint_told(life: PodLife, record: EndpointTerminating) -> None:
    """A slice tells of the pod's endpoint; it may do so before the watch of pods tells of the deletion."""
    if not life.deleted:
        if not record.removed:
            life.early_endpoints.append(record)
        return
    if not record.removed:
        life.last_endpoint |= record.ready_left == 0
        life.stays_ready_in[record.service] = record.stays_ready
    if life.endpoint_seen_ns is None:
        life.endpoint_seen_ns = record.at_ns
        _reach(life, Stage.ENDPOINTSLICE, record.at_ns, StageWitness.ENDPOINTSLICE_WATCH)


def kube_proxy_told(life: PodLife, state: KubeProxyState, commits: Iterable[NftablesCommitted]) -> None:
    """kube-proxy's metrics: with nothing pending, its last sync had the deletion in it.

    Where its mode commits to nftables, the time is that of the sync's last commit.
    """
    deletion = life.own_boundaries.get(Boundary.DELETION_REQUESTED)
    if deletion is None or life.endpoint_seen_ns is None or Stage.KUBE_PROXY in life.stage_seconds:
        return
    if state.synced_ns is None or state.pending != 0 or state.synced_ns < deletion.at_ns:
        return
    if state.at_ns < life.endpoint_seen_ns + KUBE_PROXY_HEARS_NS:
        return
    ends_ns = state.synced_ns + ONE_SYNC_NS
    committed = [commit.at_ns for commit in commits if deletion.at_ns <= commit.at_ns <= ends_ns]
    if committed:
        _reach(life, Stage.KUBE_PROXY, max(committed), StageWitness.NFTABLES_COMMIT)
    else:
        _reach(life, Stage.KUBE_PROXY, state.synced_ns, StageWitness.KUBE_PROXY_METRICS)


def _reach(life: PodLife, stage: Stage, at_ns: int, witness: StageWitness) -> None:
    seconds = life.seconds_since_deletion(at_ns)
    if seconds is not None:
        life.stage_seconds[stage] = seconds
        life.stage_witnesses[stage] = witness
