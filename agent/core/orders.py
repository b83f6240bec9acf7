"""What the tracker asks of the kernel side and of the cluster side."""

from dataclasses import dataclass
from enum import IntFlag

from agent.core.phases import Fact
from agent.core.records import Address
from agent.core.wanted_source import WantedSource


class HookEvidence(IntFlag):
    """What shows that a preStop hook of a pod runs. The bits are those of bpf/records.h."""

    NONE = 0
    PROCESS = 1
    """Processes that the runtime starts in the pod's containers (exec hook)."""
    KUBELET_CONNECTION = 2
    """Connections of the kubelet to the pod (HTTP hook)."""


@dataclass(frozen=True, slots=True)
class SetPodFacts:
    """From now on these facts hold for every connection to the namespace, and this evidence is reported."""

    netns: int
    facts: Fact
    evidence: HookEvidence = HookEvidence.NONE


@dataclass(frozen=True, slots=True)
class MarkPortsServed:
    """These ports were served before anybody watched: refusals there are drops, listener or not."""

    netns: int
    ports: frozenset[int]


@dataclass(frozen=True, slots=True)
class MarkAddressGone:
    """Nothing answers at this address any more; attempts at it are drops of the namespace's pod."""

    address: Address
    netns: int


@dataclass(frozen=True, slots=True)
class MarkAddressBack:
    """The address belongs to another pod, or is not watched any longer."""

    address: Address


@dataclass(frozen=True, slots=True)
class ForgetNamespace:
    """Free what the kernel side holds of this namespace."""

    netns: int


@dataclass(frozen=True, slots=True)
class FindNamespaces:
    """A pod runs whose namespace or containers are not known: look among the processes of the node."""


@dataclass(frozen=True, slots=True)
class FollowNamespace:
    """Watch endpoint slices and events of a namespace, in which a pod of this node is dying or restarting."""

    namespace: str


@dataclass(frozen=True, slots=True)
class UnfollowNamespace:
    """No pod of this node is dying or restarting in the namespace any more."""

    namespace: str


@dataclass(frozen=True, slots=True)
class WatchClosely:
    """Whether any pod of this node is dying or restarting, so that costly watching is worth it."""

    on: bool


@dataclass(frozen=True, slots=True)
class IdentifySources:
    """Ask the API server whose addresses these are."""

    sources: tuple[WantedSource, ...]


Order = (
    SetPodFacts
    | MarkPortsServed
    | MarkAddressGone
    | MarkAddressBack
    | ForgetNamespace
    | FindNamespaces
    | FollowNamespace
    | UnfollowNamespace
    | WatchClosely
    | IdentifySources
)
