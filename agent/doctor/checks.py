"""What the facts mean for the agent: one pure function a check."""

import re
from collections.abc import Callable

from agent.core.kinds import Kind
from agent.doctor.check import Check, Status
from agent.doctor.facts import ApiAccess, Facts, Probe
from agent.kernel.capabilities import NEEDED_CAPABILITIES, USEFUL_CAPABILITIES
from agent.kernel.hooks import AttachType, HookStatus

OLDEST_KERNEL = (5, 14)
"""The first release that tells a network namespace's cookie to user space (SO_NETNS_COOKIE)."""


def check_root(facts: Facts) -> Check:
    """The agent reads other users' processes and namespaces."""
    if facts.effective_uid == 0:
        return Check("root", Status.OK, "running as root")
    return Check("root", Status.FAIL, f"running as user {facts.effective_uid}", "Run it as root, with sudo.")


def check_capabilities(facts: Facts) -> Check:
    """Capabilities may be missing although the user is root, as in a container."""
    missing = [name for name in NEEDED_CAPABILITIES if name not in facts.capabilities]
    if missing:
        return Check("capabilities", Status.FAIL, _lacking(missing, NEEDED_CAPABILITIES), _grant(missing))
    missing = [name for name in USEFUL_CAPABILITIES if name not in facts.capabilities]
    if missing:
        return Check("capabilities", Status.WARN, _lacking(missing, USEFUL_CAPABILITIES), _grant(missing))
    return Check("capabilities", Status.OK, ", ".join([*NEEDED_CAPABILITIES, *USEFUL_CAPABILITIES]))


def _lacking(names: list[str], purposes: dict[str, str]) -> str:
    return "without " + ", ".join(f"{name} it cannot {purposes[name]}" for name in names)


def _grant(names: list[str]) -> str:
    added = ", ".join(name.removeprefix("CAP_") for name in names)
    return f"Add {added} to the container's securityContext.capabilities, or run it as root on the node."


def check_kernel(facts: Facts) -> Check:
    """Hooks are chosen by what the kernel has; only what no kernel before OLDEST_KERNEL has is asked for."""
    release = _release(facts)
    if release is not None and release < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        return Check("kernel", Status.FAIL, f"Linux {facts.kernel_release}", f"Boot Linux {oldest} or newer.")
    return Check("kernel", Status.OK, f"Linux {facts.kernel_release}")


def _release(facts: Facts) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", facts.kernel_release)
    return (int(match[1]), int(match[2])) if match else None


def check_btf(facts: Facts) -> Check:
    """The kernel's own type information stands in for its headers."""
    return _judge("BTF", facts.btf, Status.FAIL, "Boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y.")


def check_tracefs(facts: Facts) -> Check:
    """Raw tracepoints are opened by name without tracefs; only kprobes may need it."""
    if facts.tracefs is not None and facts.tracefs.readable:
        return Check("tracefs", Status.OK, f"mounted at {facts.tracefs.mount}")
    found = "not mounted" if facts.tracefs is None else f"{facts.tracefs.mount} is not readable"
    if facts.hooks.problem is None and not _kprobes(facts):
        return Check("tracefs", Status.OK, f"{found}; only kprobes need it, and this kernel needs no kprobe")
    return Check(
        "tracefs",
        Status.WARN,
        f"{found}; the kprobes that see refused connections on older kernels may need it",
        "Mount it: mount -t tracefs tracefs /sys/kernel/tracing",
    )


def _kprobes(facts: Facts) -> list[HookStatus]:
    return [status for status in facts.hooks.statuses if status.hook.attach_type is AttachType.KPROBE]


def check_bcc(facts: Facts) -> Check:
    """The compiler of the BPF programs; on PyPI that name is another program's."""
    return _judge(
        "bcc",
        facts.bcc,
        Status.FAIL,
        "Install the distribution's package: apt-get install python3-bpfcc."
        " A virtual environment must be made with --system-site-packages.",
    )


def check_bpftool(facts: Facts) -> Check:
    """Turns BTF into the header that the programs are compiled against."""
    return _judge(
        "bpftool",
        facts.bpftool,
        Status.FAIL,
        "Install it: apt-get install bpftool (on Ubuntu up to 24.04: linux-tools-$(uname -r)).",
    )


def check_libbpf(facts: Facts) -> Check:
    """Reads the maps and the ring buffer."""
    return _judge("libbpf", facts.libbpf, Status.FAIL, "Install it: apt-get install libbpf1.")


def _judge(name: str, probe: Probe, otherwise: Status, remedy: str) -> Check:
    if probe.answer is not None:
        return Check(name, Status.OK, probe.answer)
    return Check(name, otherwise, probe.problem or "not found", remedy)


def check_lockdown(facts: Facts) -> Check:
    """In confidentiality mode BPF programs may not read kernel memory."""
    if facts.lockdown is None:
        return Check(
            "lockdown", Status.OK, "state not readable here; the hooks below were tried all the same"
        )
    if facts.lockdown == "confidentiality":
        return Check(
            "lockdown",
            Status.FAIL,
            "confidentiality: BPF programs may not read kernel memory",
            "Boot with lockdown=integrity or without lockdown.",
        )
    return Check("lockdown", Status.OK, facts.lockdown)


def check_hooks(facts: Facts) -> tuple[Check, ...]:
    """One outcome a hook. Only a node where no kind of drop is left to see is of no use."""
    if facts.hooks.problem is not None:
        remedy = "Mend what is marked fail above, then run it again."
        return (Check("hooks", Status.FAIL, facts.hooks.problem, remedy),)
    lost = {kind for status in facts.hooks.statuses if not status.attached for kind in status.hook.costs}
    otherwise = Status.FAIL if lost >= set(Kind) else Status.WARN
    return tuple(_check_hook(status, otherwise) for status in facts.hooks.statuses)


def _check_hook(status: HookStatus, otherwise: Status) -> Check:
    name = f"hook {status.hook.name}"
    variant = status.hook.attach_type.value
    if status.attached:
        return Check(name, Status.OK, f"attaches as {variant}")
    found = f"does not attach as {variant}: {status.reason or 'no reason given'}"
    return Check(name, otherwise, found, f"Without it, {status.consequence}.")


def check_cgroups(facts: Facts) -> Check:
    """A container is told by its cgroup, which /proc names; the hierarchy itself need not be in sight."""
    layout = facts.cgroups
    if facts.pods:
        return Check("cgroups", Status.OK, f"{facts.pods} pods told by the cgroups of their processes")
    if layout.unified is None and not layout.legacy:
        return Check(
            "cgroups", Status.FAIL, "no cgroup hierarchy is mounted", "Mount the host's /sys/fs/cgroup."
        )
    if layout.unified is None:
        shape = f"v1 only, at {layout.legacy[0].parent}"
    elif layout.legacy:
        shape = f"v1 at {layout.legacy[0].parent} with v2 at {layout.unified}"
    else:
        shape = f"v2 at {layout.unified}"
    if not layout.kubepods:
        return Check(
            "cgroups",
            Status.WARN,
            f"{shape}; no kubepods cgroup",
            "Expected on a machine without pods. In a container, run it with hostPID.",
        )
    return Check("cgroups", Status.OK, f"{shape}; pods at {', '.join(map(str, layout.kubepods))}")


def check_api(facts: Facts) -> Check:
    """Without the API server's pods no drop has a name."""
    match facts.api.access:
        case ApiAccess.ANSWERED:
            return Check("API server", Status.OK, facts.api.detail)
        case ApiAccess.NOT_CONFIGURED:
            remedy = "Give --kubeconfig FILE, or run it in a pod with a service account."
            return Check("API server", Status.WARN, facts.api.detail, remedy)
        case ApiAccess.UNREADABLE:
            remedy = "Give --kubeconfig a file with which kubectl get pods works."
            return Check("API server", Status.FAIL, facts.api.detail, remedy)
        case ApiAccess.FORBIDDEN:
            remedy = "Grant the user or service account get, list and watch on pods."
            return Check("API server", Status.FAIL, facts.api.detail, remedy)
        case ApiAccess.UNREACHABLE:
            remedy = "Check the server's address; the agent itself keeps trying."
            return Check("API server", Status.WARN, facts.api.detail, remedy)


def check_kube_proxy(facts: Facts) -> Check:
    """Without it the kube_proxy stage of the propagation lag stays null."""
    return _judge(
        "kube-proxy",
        facts.kube_proxy,
        Status.WARN,
        "Give --kube-proxy-metrics its address. Without kube-proxy the stage kube_proxy stays null.",
    )


_CHECKS: tuple[Callable[[Facts], Check], ...] = (
    check_root,
    check_capabilities,
    check_kernel,
    check_btf,
    check_tracefs,
    check_bcc,
    check_bpftool,
    check_libbpf,
    check_lockdown,
)
_SURROUNDINGS: tuple[Callable[[Facts], Check], ...] = (check_cgroups, check_api, check_kube_proxy)


def all_checks(facts: Facts) -> tuple[Check, ...]:
    """Every check's outcome, in the order in which a person would mend them."""
    return (
        *(check(facts) for check in _CHECKS),
        *check_hooks(facts),
        *(check(facts) for check in _SURROUNDINGS),
    )
