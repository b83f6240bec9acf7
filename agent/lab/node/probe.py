import json
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum

from agent.lab.node.errors import NodeError
from agent.lab.node.runtime import module_argv, module_environment

END_TIMEOUT_S = 5.0


class ProbeKind(StrEnum):
    HTTP_GET = "httpGet"
    TCP_SOCKET = "tcpSocket"


@dataclass(frozen=True)
class ProbeTarget:
    """What to probe: `name` is the caller's own. Times in seconds, as in a pod's spec."""

    name: str
    kind: ProbeKind
    host: str
    port: int
    path: str = "/"
    period_s: float = 1.0
    timeout_s: float = 1.0
    initial_delay_s: float = 0.0


@dataclass(frozen=True)
class ProbeResult:
    """One probe's end at `time_ns` (CLOCK_REALTIME); `detail` is the status code or the error's name."""

    name: str
    time_ns: int
    success: bool
    detail: str


class Prober:
    """Probes pods as the kubelet does: from a host process named `kubelet`, a new connection each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, Callable[[ProbeResult], None]] = {}
        self._process = subprocess.Popen(
            module_argv("agent.lab.node.probe_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=module_environment(),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="lab-prober", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, target: ProbeTarget, on_result: Callable[[ProbeResult], None]) -> None:
        """Probe the target until `forget`; `on_result` is called for each result, in the prober's thread.

        A target of the same name is replaced. Raises NodeError if the prober's process has died.
        """
        with self._lock:
            self._listeners[target.name] = on_result
            self._say({"watch": asdict(target)})

    def forget(self, name: str) -> None:
        """Stop probing. A probe that is under way ends, its result is dropped."""
        with self._lock:
            if self._listeners.pop(name, None) is not None:
                self._say({"forget": name})

    def close(self) -> None:
        """End the prober's process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_TIMEOUT_S)

    def _say(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise NodeError("the lab's prober process is gone: start the lab again") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as results:
            for line in results:
                result = ProbeResult(**json.loads(line))
                listener = self._listeners.get(result.name)
                if listener is not None:
                    listener(result)
