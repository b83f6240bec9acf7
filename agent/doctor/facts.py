"""What the doctor found on this node, before any judgement."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.kernel.hooks import HookStatus


@dataclass(frozen=True)
class Probe:
    """One thing that was tried: what it answered, or else why it did not."""

    answer: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Tracefs:
    """Where the trace file system is mounted, if it is."""

    mount: Path
    readable: bool


@dataclass(frozen=True)
class CgroupLayout:
    """The mounted cgroup hierarchies, and in which of them the kubelet's cgroups were seen."""

    unified: Path | None
    legacy: tuple[Path, ...]
    kubepods: tuple[Path, ...]


class ApiAccess(Enum):
    """How far a request for pods got."""

    NOT_CONFIGURED = "not configured"
    UNREADABLE = "unreadable"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    ANSWERED = "answered"


@dataclass(frozen=True)
class Api:
    """The outcome of asking the API server for one pod; detail names the server or the reason."""

    access: ApiAccess
    detail: str


@dataclass(frozen=True)
class HookProbe:
    """Each hook's outcome, or why no hook could be tried at all."""

    statuses: tuple[HookStatus, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that the checks judge. Capabilities are named as in capabilities(7).

    `pods` are those that processes in /proc belong to, by their cgroups: what the agent itself goes by.
    """

    effective_uid: int
    capabilities: frozenset[str]
    kernel_release: str
    btf: Probe
    tracefs: Tracefs | None
    bcc: Probe
    bpftool: Probe
    libbpf: Probe
    lockdown: str | None
    hooks: HookProbe
    cgroups: CgroupLayout
    pods: int
    api: Api
    kube_proxy: Probe
