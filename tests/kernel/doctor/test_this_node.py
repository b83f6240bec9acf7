"""The doctor on the node that runs the tests, from the command line's point of view."""

import json
import os
import subprocess
import sys

DOCTOR = (
    "import argparse, sys; from agent.doctor import command; parser = argparse.ArgumentParser();"
    " command.add_arguments(parser); sys.exit(command.run(parser.parse_args(sys.argv[1:])))"
)


def doctor(*, as_nobody: bool = False) -> tuple[int, dict[str, dict[str, str]]]:
    user = 65534 if as_nobody else None
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR, "-o", "json", "--kube-proxy-metrics", "http://127.0.0.1:1/metrics"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        user=user,
        group=user,
        extra_groups=() if as_nobody else None,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stderr == ""
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_a_node_that_runs_the_tests_is_usable_and_its_core_hooks_attach() -> None:
    code, checks = doctor()
    assert code == 0
    for hook in (
        "tcp_send_reset",
        "inet_sock_set_state",
        "signal_generate",
        "sched_process_exit",
        "kfree_skb",
    ):
        assert checks[f"hook {hook}"]["status"] == "ok", checks[f"hook {hook}"]


def test_without_root_the_node_is_not_usable_and_nothing_is_thrown() -> None:
    code, checks = doctor(as_nobody=True)
    assert code == 1
    assert checks["root"]["status"] == "fail"
    assert checks["capabilities"]["status"] == "fail"
    assert checks["hooks"]["status"] == "fail"
