"""Which hooks a kernel gets, by what its BTF says (arities from kernels 5.10, 6.1, 6.12, 6.18 and 7.2)."""

import pytest

from agent.kernel.hooks import (
    COUNTED_HOOKS,
    SEND_RESET_ENTRIES,
    HookStatus,
    plan_hooks,
)

RANGE = (0x1000, 0x2000)
OLD = {"tcp_send_reset": 2, "kfree_skb": 2, "consume_skb": 1}
ARITIES = {
    "5.10": OLD,
    "6.1": OLD | {"kfree_skb": 3},
    "6.12": {"tcp_send_reset": 3, "kfree_skb": 4, "consume_skb": 2},
    "6.18": {"tcp_send_reset": 3, "kfree_skb": 4, "consume_skb": 2, "sched_process_exit": 2},
    "7.2": {"tcp_send_reset": 3, "kfree_skb": 4, "consume_skb": 2, "sched_process_exit": 2},
}
OVERFLOW_REASON = "\tSKB_DROP_REASON_TCP_LISTEN_OVERFLOW = 40,\n"


def types_of(arities: dict[str, int], *, without: str = "") -> str:
    names = {hook.name: 1 for hook in COUNTED_HOOKS} | arities
    return OVERFLOW_REASON + "".join(
        f"typedef void (*btf_trace_{name})(void *{', int' * count});\n"
        for name, count in names.items()
        if name != without
    )


@pytest.mark.parametrize("kernel", ["6.12", "6.18", "7.2"])
def test_a_kernel_whose_resets_have_reasons_needs_raw_tracepoints_alone(kernel: str) -> None:
    plan = plan_hooks(types_of(ARITIES[kernel]), RANGE)
    assert plan.hooks == COUNTED_HOOKS
    assert plan.missing == ()
    assert set(plan.macros) == {
        "CONSUMED_SYN_FROM=4096ULL",
        "CONSUMED_SYN_TO=8192ULL",
        "KFREE_SKB_HAS_SOCKET",
    }


@pytest.mark.parametrize("kernel", ["5.10", "6.1"])
def test_a_kernel_whose_resets_are_silent_gets_kprobes(kernel: str) -> None:
    plan = plan_hooks(types_of(ARITIES[kernel]), RANGE)
    assert set(SEND_RESET_ENTRIES) <= set(plan.hooks)
    assert "RESETS_BY_KPROBE" in plan.macros
    assert [hook.name for hook, _ in plan.missing] == ["consume_skb"]


@pytest.mark.parametrize("hook", COUNTED_HOOKS, ids=lambda hook: str(hook.name))
def test_a_tracepoint_that_is_missing_is_reported_with_a_reason(hook: object) -> None:
    name = next(counted.name for counted in COUNTED_HOOKS if counted is hook)
    plan = plan_hooks(types_of(ARITIES["6.18"], without=name), RANGE)
    assert [(missing.name, bool(reason)) for missing, reason in plan.missing] == [(name, True)]


def test_hidden_kernel_addresses_cost_the_overflows_before_the_handshake() -> None:
    plan = plan_hooks(types_of(ARITIES["6.18"]), None)
    (missing, reason) = plan.missing[0]
    assert "kptr_restrict" in reason
    assert HookStatus(missing, False, reason).consequence == "not counted: overflow"
