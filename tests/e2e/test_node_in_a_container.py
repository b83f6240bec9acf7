"""A node that is itself a container, as with kind: the kernel numbers processes otherwise than its /proc."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IN_A_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
TESTS = (
    "tests/e2e/test_agent_counts.py",
    "tests/e2e/test_capabilities.py::test_pods_older_and_younger_than_the_agent_are_counted",
)


def test_what_holds_on_a_machine_holds_there_too() -> None:
    """The tests themselves, and with them the agent and the pods, run inside."""
    done = subprocess.run(
        [*IN_A_PID_NAMESPACE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
