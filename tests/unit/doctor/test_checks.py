"""What each check makes of the facts."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.kinds import Kind
from agent.doctor.check import Check, Status, usable
from agent.doctor.checks import all_checks
from agent.doctor.facts import Api, ApiAccess, CgroupLayout, Facts, HookProbe, Probe, Tracefs
from agent.kernel.capabilities import NEEDED_CAPABILITIES, USEFUL_CAPABILITIES
from agent.kernel.hooks import CONSUME_SKB, EXIT, SEND_RESET_ENTRIES, SET_STATE, TCP_SEND_RESET, HookStatus

GOOD = Facts(
    effective_uid=0,
    capabilities=frozenset(NEEDED_CAPABILITIES) | frozenset(USEFUL_CAPABILITIES),
    kernel_release="6.12.0-1-amd64",
    btf=Probe(answer="/sys/kernel/btf/vmlinux"),
    tracefs=Tracefs(Path("/sys/kernel/tracing"), readable=True),
    bcc=Probe(answer="0.26.0"),
    bpftool=Probe(answer="/usr/sbin/bpftool v7.1.0"),
    libbpf=Probe(answer="v1.1"),
    lockdown="none",
    hooks=HookProbe((HookStatus(TCP_SEND_RESET, True), HookStatus(SET_STATE, True))),
    cgroups=CgroupLayout(Path("/sys/fs/cgroup"), (), (Path("/sys/fs/cgroup/kubepods.slice"),)),
    pods=0,
    api=Api(ApiAccess.ANSWERED, "https://10.0.0.1:6443"),
    kube_proxy=Probe(answer="http://127.0.0.1:10249/metrics"),
)

KPROBES = HookProbe((*GOOD.hooks.statuses, *(HookStatus(hook, True) for hook in SEND_RESET_ENTRIES)))


def outcome(facts: Facts, name: str) -> Check:
    found = [check for check in all_checks(facts) if check.name == name]
    assert len(found) == 1
    return found[0]


def test_a_good_node_is_usable_and_needs_nothing() -> None:
    checks = all_checks(GOOD)
    assert {check.status for check in checks} == {Status.OK}
    assert all(check.remedy is None for check in checks)
    assert usable(checks)


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (replace(GOOD, effective_uid=1000), "root", "sudo"),
        (
            replace(GOOD, capabilities=GOOD.capabilities - {"CAP_SYS_PTRACE"}),
            "capabilities",
            "Add SYS_PTRACE",
        ),
        (replace(GOOD, kernel_release="4.19.0-27-amd64"), "kernel", "5.14"),
        (replace(GOOD, btf=Probe(problem="no /sys/kernel/btf/vmlinux")), "BTF", "CONFIG_DEBUG_INFO_BTF"),
        (replace(GOOD, bcc=Probe(problem="cannot be imported")), "bcc", "python3-bpfcc"),
        (replace(GOOD, bpftool=Probe(problem="not found")), "bpftool", "apt-get install bpftool"),
        (replace(GOOD, libbpf=Probe(problem="not found")), "libbpf", "libbpf1"),
        (replace(GOOD, lockdown="confidentiality"), "lockdown", "integrity"),
        (replace(GOOD, hooks=HookProbe(problem="bpftool is missing")), "hooks", "Mend"),
        (replace(GOOD, cgroups=CgroupLayout(None, (), ())), "cgroups", "/sys/fs/cgroup"),
        (replace(GOOD, api=Api(ApiAccess.UNREADABLE, "no such file")), "API server", "--kubeconfig"),
        (replace(GOOD, api=Api(ApiAccess.FORBIDDEN, "403")), "API server", "list and watch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_agent_cannot_do_without_makes_the_node_unusable_and_says_what_to_do(
    facts: Facts, name: str, words: str
) -> None:
    check = outcome(facts, name)
    assert check.status is Status.FAIL
    assert words in (check.remedy or "")
    assert not usable(all_checks(facts))


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (replace(GOOD, capabilities=GOOD.capabilities - {"CAP_NET_ADMIN"}), "capabilities", "Add NET_ADMIN"),
        (replace(GOOD, capabilities=GOOD.capabilities - {"CAP_SYSLOG"}), "capabilities", "Add SYSLOG"),
        (replace(GOOD, hooks=KPROBES, tracefs=None), "tracefs", "mount -t tracefs"),
        (replace(GOOD, cgroups=CgroupLayout(Path("/sys/fs/cgroup"), (), ())), "cgroups", "without pods"),
        (replace(GOOD, api=Api(ApiAccess.NOT_CONFIGURED, "none")), "API server", "--kubeconfig"),
        (replace(GOOD, api=Api(ApiAccess.UNREACHABLE, "refused")), "API server", "keeps trying"),
        (replace(GOOD, kube_proxy=Probe(problem="refused")), "kube-proxy", "null"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_agent_can_do_without_is_a_warning_with_what_to_do(
    facts: Facts, name: str, words: str
) -> None:
    check = outcome(facts, name)
    assert check.status is Status.WARN
    assert words in (check.remedy or "")
    assert usable(all_checks(facts))


def test_tracefs_is_not_asked_for_where_no_kprobe_is_needed() -> None:
    assert outcome(replace(GOOD, tracefs=None), "tracefs").status is Status.OK


def test_an_unreadable_tracefs_says_where_it_is() -> None:
    facts = replace(GOOD, tracefs=Tracefs(Path("/sys/kernel/tracing"), readable=False))
    assert "/sys/kernel/tracing is not readable" in outcome(facts, "tracefs").found


def test_a_kernel_release_without_numbers_is_not_judged_by_its_version() -> None:
    assert outcome(replace(GOOD, kernel_release="custom"), "kernel").status is Status.OK


def test_an_unknown_lockdown_state_is_left_to_the_hooks() -> None:
    check = outcome(replace(GOOD, lockdown=None), "lockdown")
    assert check.status is Status.OK
    assert "not readable" in check.found


def test_a_hook_that_does_not_attach_says_which_kinds_are_not_counted() -> None:
    statuses = (
        HookStatus(SET_STATE, True),
        HookStatus(CONSUME_SKB, False, "this kernel has no such tracepoint"),
    )
    facts = replace(GOOD, hooks=HookProbe(statuses))
    check = outcome(facts, "hook consume_skb")
    assert check.status is Status.WARN
    assert "no such tracepoint" in check.found
    assert Kind.OVERFLOW.value in (check.remedy or "")
    assert usable(all_checks(facts))


def test_a_hook_without_kinds_says_what_else_is_not_seen() -> None:
    facts = replace(GOOD, hooks=HookProbe((HookStatus(EXIT, False, "refused"),)))
    assert "phase exited" in (outcome(facts, "hook sched_process_exit").remedy or "")


def test_a_node_where_no_kind_can_be_counted_is_unusable() -> None:
    facts = replace(GOOD, hooks=HookProbe((HookStatus(SET_STATE, False, "refused"), HookStatus(EXIT, True))))
    assert outcome(facts, "hook inet_sock_set_state").status is Status.FAIL
    assert not usable(all_checks(facts))


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (CgroupLayout(Path("/sys/fs/cgroup"), (), ()), "v2 at /sys/fs/cgroup"),
        (CgroupLayout(None, (Path("/sys/fs/cgroup/pids"),), ()), "v1 only, at /sys/fs/cgroup"),
        (
            CgroupLayout(Path("/sys/fs/cgroup/unified"), (Path("/sys/fs/cgroup/pids"),), ()),
            "v1 at /sys/fs/cgroup with v2 at /sys/fs/cgroup/unified",
        ),
    ],
)
def test_each_cgroup_layout_is_told(layout: CgroupLayout, shape: str) -> None:
    assert outcome(replace(GOOD, cgroups=layout), "cgroups").found.startswith(shape)


def test_in_a_container_that_sees_no_hierarchy_pods_are_told_by_their_processes() -> None:
    check = outcome(replace(GOOD, cgroups=CgroupLayout(None, (), ()), pods=3), "cgroups")
    assert check.status is Status.OK
    assert "3 pods" in check.found
