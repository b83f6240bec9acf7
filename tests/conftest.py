"""Tests that a machine cannot run are skipped with the reason; in CI (CI=true) that is a failure instead."""

import os
import shutil
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI") == "true"
KERNEL_TOOLS: tuple[str, ...] = ("bpftool", "ip")
E2E_TOOLS: tuple[str, ...] = (*KERNEL_TOOLS, "nft", "nginx")
SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in tests/kernel and tests/e2e, so that no test there can forget to say what it needs."""
    for item in items:
        parts = item.path.relative_to(Path(__file__).parent).parts
        if parts[0] in ("kernel", "e2e"):
            item.add_marker(parts[0])


def _obstacle(item: pytest.Item) -> str | None:
    """Why this machine cannot run the test, or None."""
    if item.get_closest_marker("e2e"):
        tools = E2E_TOOLS
    elif item.get_closest_marker("kernel"):
        tools = KERNEL_TOOLS
    else:
        return None
    if os.geteuid() != 0:
        return "needs root: run it with sudo"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF=y)"
    missing = [tool for tool in tools if shutil.which(tool, path=SYSTEM_PATH) is None]
    return f"needs {', '.join(missing)}: run 'sudo make setup'" if missing else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, what cannot run here."""
    obstacle = _obstacle(item)
    if obstacle is None:
        return
    if IN_CI:
        pytest.fail(obstacle, pytrace=False)
    pytest.skip(obstacle)
