"""What the tracker asks of the kernel side and of the cluster side."""

from dataclasses import dataclass

from agent.core.phases import Fact
from agent.core.records import Address


@dataclass(frozen=True, slots=True)
class SetPodFacts:
    """From now on these facts hold for every connection to the namespace."""

    netns: int
    facts: Fact


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
    """A pod runs whose namespace is not known: look among the processes of the node."""


@dataclass(frozen=True, slots=True)
class FollowEndpoints:
    """Watch the endpoint slices of a namespace, in which a pod of this node is dying."""

    namespace: str


@dataclass(frozen=True, slots=True)
class UnfollowEndpoints:
    """No pod of this node is dying in the namespace any more."""

    namespace: str


@dataclass(frozen=True, slots=True)
class WatchClosely:
    """Whether any pod of this node is dying or restarting, so that costly watching is worth it."""

    on: bool


Order = (
    SetPodFacts
    | MarkPortsServed
    | MarkAddressGone
    | MarkAddressBack
    | ForgetNamespace
    | FindNamespaces
    | FollowEndpoints
    | UnfollowEndpoints
    | WatchClosely
)
