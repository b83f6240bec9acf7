"""The kernel hooks, what each one shows, and which variant of it this kernel offers.

The choice rests on the kernel's BTF (docs/kinds-and-phases.md), never on its version.
"""

from dataclasses import dataclass
from enum import Enum

from agent.core.kinds import Kind
from agent.kernel.btf_headers import argument_counts, has_enumerator

ALL_KINDS = tuple(Kind)


class AttachType(Enum):
    """How a program is attached; the value is the variant in lastcall_hook_attached."""

    RAW_TRACEPOINT = "raw_tp"
    KPROBE = "kprobe"


@dataclass(frozen=True, slots=True)
class Hook:
    """One program at one place of the kernel. `costs` are the kinds that cannot be counted without it."""

    name: str
    program: str
    attach_type: AttachType
    costs: tuple[Kind, ...]
    tells: str = ""
    """What is lost without it, where that is not a kind."""


TCP_SEND_RESET = Hook(
    "tcp_send_reset",
    "on_send_reset",
    AttachType.RAW_TRACEPOINT,
    (Kind.REFUSED, Kind.STALE, Kind.UNACCEPTED, Kind.UNREAD, Kind.ABORTED),
)
SET_STATE = Hook("inet_sock_set_state", "on_set_state", AttachType.RAW_TRACEPOINT, ALL_KINDS)
SIGNAL = Hook(
    "signal_generate", "on_signal", AttachType.RAW_TRACEPOINT, (), tells="phases stopping and restarting"
)
EXIT = Hook(
    "sched_process_exit",
    "on_exit",
    AttachType.RAW_TRACEPOINT,
    (),
    tells="phase exited, and the end of a preStop hook of the type exec",
)
KFREE_SKB = Hook("kfree_skb", "on_kfree_skb", AttachType.RAW_TRACEPOINT, (Kind.UNREACHABLE,))
CONSUME_SKB = Hook("consume_skb", "on_consume_skb", AttachType.RAW_TRACEPOINT, (Kind.OVERFLOW,))
RETRANSMIT = Hook(
    "tcp_retransmit_skb",
    "on_retransmit",
    AttachType.RAW_TRACEPOINT,
    (),
    tells="kind unreachable where no copy of the packet is discarded on this node",
)
TCP_PROBE = Hook(
    "tcp_probe",
    "on_tcp_probe",
    AttachType.RAW_TRACEPOINT,
    (),
    tells="kinds unanswered and aborted on a connection that was answered in the same clock tick before",
)
EXEC = Hook(
    "sched_process_exec",
    "on_exec",
    AttachType.RAW_TRACEPOINT,
    (),
    tells="whether a preStop hook of the type exec ran",
)
SEND_RESET_ENTRIES = tuple(
    Hook(
        f"tcp_{family}_send_reset",
        "on_send_reset_entry",
        AttachType.KPROBE,
        (Kind.REFUSED, Kind.STALE),
    )
    for family in ("v4", "v6")
)

COUNTED_HOOKS = (
    TCP_SEND_RESET,
    SET_STATE,
    SIGNAL,
    EXIT,
    KFREE_SKB,
    CONSUME_SKB,
    RETRANSMIT,
    TCP_PROBE,
    EXEC,
)
"""In the order of enum lc_hook in bpf/records.h."""


@dataclass(frozen=True, slots=True)
class HookPlan:
    """The hooks to attach on a kernel, the macros to compile with, and the hooks that it does not offer."""

    hooks: tuple[Hook, ...]
    macros: tuple[str, ...]
    missing: tuple[tuple[Hook, str], ...]


@dataclass(frozen=True, slots=True)
class HookStatus:
    """Whether a hook is attached; `reason` says why not."""

    hook: Hook
    attached: bool
    reason: str | None = None

    @property
    def consequence(self) -> str:
        """What cannot be seen without the hook, for a person to read."""
        kinds = ", ".join(kind.value for kind in self.hook.costs)
        if kinds:
            return f"not counted: {kinds}"
        return f"not seen: {self.hook.tells}"


def plan_hooks(types: str, consumed_syn_range: tuple[int, int] | None) -> HookPlan:
    """Choose the hooks from the kernel's types (as C, from BTF).

    `consumed_syn_range` is where tcp_rcv_state_process lies in the kernel's text (/proc/kallsyms), or None.
    """
    arguments = argument_counts(types)
    hooks: list[Hook] = []
    macros: list[str] = []
    missing: list[tuple[Hook, str]] = []
    for hook in COUNTED_HOOKS:
        reason = _reason_against(hook, arguments, consumed_syn_range)
        if reason:
            missing.append((hook, reason))
        else:
            hooks.append(hook)
    if CONSUME_SKB in hooks and consumed_syn_range:
        macros += [
            f"CONSUMED_SYN_{end}={at}ULL" for end, at in zip(("FROM", "TO"), consumed_syn_range, strict=True)
        ]
    if arguments.get("kfree_skb", 0) >= 4 and has_enumerator(types, "SKB_DROP_REASON_TCP_LISTEN_OVERFLOW"):
        macros.append("KFREE_SKB_HAS_SOCKET")
    if arguments.get("tcp_send_reset") == 2:
        hooks += SEND_RESET_ENTRIES
        macros.append("RESETS_BY_KPROBE")
    return HookPlan(tuple(hooks), tuple(macros), tuple(missing))


def _reason_against(hook: Hook, arguments: dict[str, int], syn_range: tuple[int, int] | None) -> str | None:
    if hook.name not in arguments:
        return "this kernel has no such tracepoint"
    if hook is CONSUME_SKB:
        if arguments[hook.name] < 2:
            return "this kernel does not say where a packet is consumed (before Linux 6.4)"
        if syn_range is None:
            return "/proc/kallsyms does not show tcp_rcv_state_process: set kernel.kptr_restrict to 1 or 0"
    return None
