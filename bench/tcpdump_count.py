"""The same refusals counted by tcpdump, in the pod's namespace."""

import re
import shutil
import signal
import subprocess
import time

from bench.connections import CLOSED_PORT, Target

RESETS = f"tcp src port {CLOSED_PORT} and tcp[tcpflags] & tcp-rst != 0"


def refused_beside_tcpdump(target: Target, count: int) -> tuple[float, int] | None:
    """Refused connections a second, and how many resets tcpdump captured; None where it is not installed."""
    if shutil.which("tcpdump") is None:
        return None
    process = subprocess.Popen(
        ["ip", "netns", "exec", target.pod_netns, "tcpdump", "-i", "any", "-n", "-w", "/dev/null", RESETS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while "listening on" not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit("tcpdump ended early: remove it, or make it run as root in a namespace")
        rate = target.connect(CLOSED_PORT, count)
        time.sleep(2.0)  # the capture's buffer is handed over once a second
    finally:
        process.send_signal(signal.SIGINT)
        summary = process.communicate(timeout=10)[1]
    captured = re.search(r"(\d+) packets? captured", summary)
    if captured is None:
        raise SystemExit("tcpdump did not say how many packets it captured")
    return rate, int(captured[1])
