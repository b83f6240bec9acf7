"""Capabilities are told by name, and what is missing with what to do."""

from pathlib import Path

import pytest

from agent.kernel import capabilities
from agent.kernel.capabilities import demand_capabilities, effective_capabilities
from agent.kernel.errors import KernelSideError

EVERYTHING = 0x000001FFFFFFFFFF
SYS_PTRACE, SYS_ADMIN, PERFMON, BPF = 1 << 19, 1 << 21, 1 << 38, 1 << 39


def holding(mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tagent\nCapEff:\t{mask:016x}\n")
    monkeypatch.setattr(capabilities, "OWN_STATUS", status)


def test_capabilities_are_read_from_their_bits() -> None:
    assert effective_capabilities("Name:\tx\nCapEff:\t0000008000001000\n") == {"CAP_BPF", "CAP_NET_ADMIN"}
    assert effective_capabilities("CapEff:\t0000000000000000\n") == frozenset()


@pytest.mark.parametrize("lacking", [0, BPF | PERFMON])
def test_sys_admin_stands_in_for_the_narrower_ones(
    lacking: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding(EVERYTHING & ~lacking, tmp_path, monkeypatch)
    demand_capabilities()


@pytest.mark.parametrize(("lacking", "name"), [(SYS_ADMIN, "SYS_ADMIN"), (SYS_PTRACE, "SYS_PTRACE")])
def test_what_is_missing_is_named(
    lacking: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding(EVERYTHING & ~lacking, tmp_path, monkeypatch)
    with pytest.raises(KernelSideError, match=f"add {name} to"):
        demand_capabilities()
