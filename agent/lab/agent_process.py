"""The agent under test: the ordinary `agent run`, in its own process."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from agent.lab.errors import LabError

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOG_LINES = 5


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How the agent ended: its exit code, and what it last wrote to its log if that is not 0."""

    exit_code: int
    log: str


class AgentProcess:
    """One `agent run`; `url` is its address, `ready_seconds` how long it took until /readyz said yes."""

    def __init__(self, node_name: str, kubeconfig: Path, kube_proxy_metrics: str, log: Path) -> None:
        """Start it and wait until it is ready. Raises LabError."""
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        started = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "agent.cli", "run"),
                    *("--node-name", node_name),
                    *("--kubeconfig", str(kubeconfig)),
                    *("--listen", f"127.0.0.1:{port}"),
                    *("--kube-proxy-metrics", kube_proxy_metrics),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_ready(started + _READY_SECONDS)
        except BaseException:
            self.stop()
            raise
        self.ready_seconds = time.monotonic() - started

    def metrics(self) -> str:
        """The metrics page. Raises LabError if the agent does not answer."""
        try:
            with urllib.request.urlopen(self.url + "/metrics", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except OSError as error:
            raise LabError(
                f"the agent does not answer on {self.url}: {error}; {self._last_words()}"
            ) from error

    def resident_megabytes(self) -> float:
        """Resident memory of the agent's process, in 10^6 bytes."""
        fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> AgentEnd:
        """End it with SIGTERM (SIGKILL if that takes longer than 10 s) and say how it ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return AgentEnd(code, "" if code == 0 else self._last_words())

    def _wait_ready(self, deadline: float) -> None:
        while not self._ready():
            if self._process.poll() is not None:
                raise LabError(
                    f"agent run ended with exit code {self._process.returncode}: {self._last_words()}"
                )
            if time.monotonic() > deadline:
                raise LabError(f"agent run is not ready after {_READY_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-_LOG_LINES:]) or "it wrote nothing to its log"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
