import json
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from agent.lab.node.errors import NodeError
from agent.lab.node.outcome import FailedConnection, Outcome, Via, failed_connection_from_json
from agent.lab.node.runtime import Process, Runtime, module_argv, module_environment

STARTING_POLL_S = 0.01
NOT_CONNECTIONS = ('{"started_ns"', '{"totals"')


@dataclass(frozen=True)
class LoadPlan:
    """What one load generator does.

    `rate` is requests a second over all connections; `requests` and `seconds` bound the run (whichever comes
    first), after which what is in flight is awaited, so the generator never aborts a connection. With
    `keep_alive` there are `connections` kept-alive connections, else a new one per request and `connections`
    at most at a time. `check_idle` looks whether a kept-alive connection was closed before a request is
    written on it; without it every connection that the peer closed while idle costs a failed request.
    """

    host: str
    port: int
    via: Via
    seconds: float
    rate: float
    method: str = "GET"
    path: str = "/"
    body_bytes: int = 0
    keep_alive: bool = False
    connections: int = 64
    requests: int | None = None
    connect_timeout_s: float = 2.5
    answer_timeout_s: float = 8.0
    check_idle: bool = True
    seed: int = 0


@dataclass(frozen=True)
class LoadResult:
    """What a load generator saw.

    `sent` = `answered` + `failures`; `by_pod` counts answers by the X-Pod header.
    """

    sent: int
    answered: int
    connections: int
    idle_closed: int
    by_pod: dict[str, int]
    failures: list[FailedConnection] = field(default_factory=list)
    delayed: list[FailedConnection] = field(default_factory=list)


class Load:
    """A running load generator."""

    def __init__(self, process: Process, plan: LoadPlan, records: Path) -> None:
        self.plan = plan
        self._process = process
        self._records = records

    @classmethod
    def start(cls, runtime: Runtime, namespace: Path, plan: LoadPlan, records: Path) -> Self:
        """Start it in the network namespace; one JSON line per failed connection goes to `records`."""
        records.touch()
        process = runtime.start(
            module_argv("agent.lab.node.load_process", json.dumps(asdict(plan)), str(records)),
            environment=module_environment(),
            namespace=namespace,
            output=records.with_suffix(".log"),
        )
        return cls(process, plan, records)

    def failures(self) -> list[FailedConnection]:
        """The connections that failed so far."""
        return [record for record in self._read() if record.outcome is not Outcome.DELAYED]

    def stop(self) -> None:
        """Start no more requests; what is in flight is awaited."""
        while self._process.status is None and not self._records.stat().st_size:
            time.sleep(STARTING_POLL_S)
        self._process.signal(signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the end; False if it still runs."""
        return self._process.wait(timeout) is not None

    def result(self) -> LoadResult:
        """What it saw in all. Raises NodeError if it has not ended, or ended badly."""
        if self._process.status != 0:
            log = self._records.with_suffix(".log")
            last = log.read_text().strip().rsplit("\n", 1)[-1] if log.exists() else ""
            raise NodeError(f"the load generator ended with {self._process.status}: {last}")
        totals = json.loads(self._records.read_text().rstrip("\n").rsplit("\n", 1)[-1])["totals"]
        delayed = [record for record in self._read() if record.outcome is Outcome.DELAYED]
        return LoadResult(**totals, failures=self.failures(), delayed=delayed)

    def _read(self) -> list[FailedConnection]:
        lines = self._records.read_text().split("\n")[:-1]
        return [failed_connection_from_json(line) for line in lines if not line.startswith(NOT_CONNECTIONS)]
