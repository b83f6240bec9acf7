"""`agent run` as a process, for tests that look at it from outside."""

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

COMMAND = [sys.executable, "-m", "agent.cli", "run"]


@dataclass
class RunningAgent:
    """The process and where it answers."""

    process: subprocess.Popen[str]
    url: str
    started: float

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nothing listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.read().decode()
        except OSError:
            return 0, ""

    def await_status(self, path: str, status: int, seconds: float = 20) -> str:
        """Wait for an answer; returns its body."""
        deadline = time.monotonic() + seconds
        while True:
            found, body = self.get(path)
            if found == status:
                return body
            assert time.monotonic() < deadline, f"{path} answers {found} {body!r}, not {status}"
            time.sleep(0.05)

    def families(self) -> dict[str, Metric]:
        """The metrics by family name."""
        return {family.name: family for family in text_string_to_metric_families(self.get("/metrics")[1])}

    def await_metrics(self, holds: Callable[[dict[str, Metric]], bool], seconds: float = 5) -> None:
        """Scrape until something holds."""
        deadline = time.monotonic() + seconds
        while not holds(self.families()):
            assert time.monotonic() < deadline, self.get("/metrics")[1]
            time.sleep(0.05)

    def dropped(self, pod: str) -> Counter[tuple[str, str]]:
        """The pod's drops by kind and phase."""
        samples = self.families()["lastcall_pod_dropped_connections"].samples
        counts = {
            (sample.labels["kind"], sample.labels["phase"]): int(sample.value)
            for sample in samples
            if sample.labels["pod"] == pod
        }
        return +Counter(counts)

    def late(self, pod: str) -> Counter[str]:
        """The pod's late connections by phase."""
        samples = self.families()["lastcall_pod_late_connections"].samples
        return +Counter({s.labels["phase"]: int(s.value) for s in samples if s.labels["pod"] == pod})

    def resident_megabytes(self) -> float:
        """VmRSS in 10^6 bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6

    def stop(self) -> tuple[int, str]:
        """SIGTERM: exit code and what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        _, written = self.process.communicate(timeout=15)
        return self.process.returncode, written


@contextmanager
def running_agent(*arguments: str, around: tuple[str, ...] = ()) -> Iterator[RunningAgent]:
    """An agent on a free port, that is killed at the end if the test has not ended it.

    `around` is a command that replaces itself by the one that it is given.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    process = subprocess.Popen(
        [*around, *COMMAND, "--listen", f"127.0.0.1:{port}", "--node-name", "lab-node", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield RunningAgent(process, f"http://127.0.0.1:{port}", started)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
