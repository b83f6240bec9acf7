"""The kernel side's own life."""

from pathlib import Path

from agent.kernel.kernel_side import KernelSide
from tests.kernel.scripted_pod import discard


def test_a_kernel_side_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    KernelSide(tmp_path / "cache", discard).stop()
