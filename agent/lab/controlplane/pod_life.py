"""One pod's life in a thread: creation, probes, restarts, and its death as the recordings show it."""

import queue
import re
import signal
import threading
import time
from enum import Enum

from agent.lab.controlplane import timings
from agent.lab.controlplane.event_objects import Reason
from agent.lab.controlplane.pod_objects import PodIdentity
from agent.lab.controlplane.pod_probes import PodProbes
from agent.lab.controlplane.pod_reports import PodReports
from agent.lab.controlplane.pod_template import CONTAINER, PodTemplate
from agent.lab.controlplane.prestop import run_hook
from agent.lab.controlplane.runtime import Container, Runtime, Sandbox

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class _Order(Enum):
    END = "end"
    RESTART = "restart"
    DISCARD = "discard"


class PodLife:
    """A pod from its creation on. What goes wrong in it is raised again by the `wait_` methods and `join`.

    `deletion_requested_ns` is just before the API server is asked to delete it (nanoseconds since the epoch).
    """

    def __init__(
        self,
        runtime: Runtime,
        reports: PodReports,
        identity: PodIdentity,
        template: PodTemplate,
    ) -> None:
        self.identity = identity
        self.template = template
        self.deletion_requested_ns: int | None = None
        self._runtime = runtime
        self._reports = reports
        self._env = {"POD_NAME": identity.name, "POD_NAMESPACE": identity.namespace}
        self._probes = PodProbes(
            runtime, identity, template, self._readiness_changed, lambda: self._orders.put(_Order.RESTART)
        )
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._restarted = threading.Event()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sandbox: Sandbox | None = None
        self._container: Container | None = None
        self._deleted_at = 0.0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """The pod's deletion has been requested."""
        self._deleted_at = time.monotonic()
        self._orders.put(_Order.END)

    def discard(self) -> None:
        """Remove the pod at once, after what it is doing now."""
        self._orders.put(_Order.DISCARD)

    @property
    def address(self) -> str:
        """The pod's first address, once it is ready."""
        return self._the_sandbox.ip_addresses[0]

    def wait_ready(self, timeout: float) -> None:
        """Wait until the API says Ready. Raises TimeoutError."""
        self._wait(self._ready, timeout, "not ready")

    def wait_restarted(self, timeout: float) -> None:
        """Wait until the API reports that a container has been replaced. Raises TimeoutError."""
        self._wait(self._restarted, timeout, "not restarted")

    def wait_deleted(self, timeout: float) -> None:
        """Wait until the API no longer has the pod. Raises TimeoutError."""
        self._wait(self._over, timeout, "not deleted")

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _wait(self, event: threading.Event, timeout: float, complaint: str) -> None:
        deadline = time.monotonic() + timeout
        while not event.wait(0.05):
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise TimeoutError(f"pod {self.identity.name} is {complaint} after {timeout:.0f} s")

    def _run(self) -> None:
        try:
            self._begin()
            while (order := self._orders.get()) is _Order.RESTART:
                self._restart()
            if order is _Order.END:
                self._die()
            else:
                self._vanish()
            self._over.set()
        except BaseException as failure:
            self._failure = failure

    def _begin(self) -> None:
        time.sleep(timings.SCHEDULED)
        self._reports.scheduled()
        self._sandbox = self._runtime.start_sandbox(self.identity.name, self.identity.uid)
        self._reports.creating()
        container = self._start_container()
        unprobed = self.template.readiness is None
        self._reports.running(self._sandbox.ip_addresses, container.container_id, ready=unprobed)
        if unprobed:
            self._ready.set()
        self._watch_probes()

    def _start_container(self) -> Container:
        self._container = self._the_sandbox.start_container(self._command(), self._env)
        return self._container

    def _command(self) -> tuple[str, ...]:
        """The template's command with $(NAME) replaced from the environment, as the kubelet does."""
        return tuple(
            _VARIABLE.sub(lambda found: self._env.get(found[1], found[0]), word)
            for word in self.template.argv
        )

    def _watch_probes(self) -> None:
        if self.template.readiness is not None or self.template.liveness is not None:
            time.sleep(timings.FIRST_PROBE)
            self._probes.watch(self._the_sandbox.ip_addresses[0])

    def _readiness_changed(self, ready: bool) -> None:
        self._reports.readiness(ready=ready)
        if ready:
            self._ready.set()

    def _restart(self) -> None:
        """A failed liveness probe: preStop and stop signal without a deletion, then a new container."""
        self._probes.forget("readiness", "liveness")
        self._reports.event(Reason.UNHEALTHY, "Liveness probe failed: ")
        self._reports.event(Reason.KILLING, f"Container {CONTAINER} failed liveness probe, will be restarted")
        exit_code = self._stop_container(time.monotonic())
        finished = time.time()
        container = self._start_container()
        self._ready.clear()
        self._reports.restarted(exit_code, finished, container.container_id)
        self._restarted.set()
        self._watch_probes()

    def _die(self) -> None:
        """The container's end, then the network's, then the object's, each at its recorded time."""
        sandbox = self._the_sandbox
        _sleep_until(self._deleted_at + timings.KUBELET_SEES_DELETION)
        self._probes.forget("liveness")
        self._reports.event(Reason.KILLING, f"Stopping container {CONTAINER}")
        acknowledgement = threading.Timer(timings.KUBELET_REPORTS_DELETION, self._reports.deletion_observed)
        acknowledgement.start()
        exit_code = self._stop_container(self._deleted_at)
        exited, finished = time.monotonic(), time.time()
        _sleep_until(exited + timings.PAUSE_KILLED)
        sandbox.kill_pause()
        _sleep_until(exited + timings.NETWORK_REMOVED)
        sandbox.remove_network()
        self._probes.forget("readiness")
        sandbox.remove()
        acknowledgement.join()
        _sleep_until(exited + timings.FINISHED_REPORTED)
        self._reports.finished(exit_code, finished)
        _sleep_until(exited + timings.DELETED_FINALLY)
        self._reports.deleted_finally()
        time.sleep(timings.DELETED_EVENT)
        self._reports.removed()

    def _stop_container(self, killing_since: float) -> int:
        """preStop, stop signal, SIGKILL when the grace period is over; returns the exit code as reported."""
        grace = float(self.template.grace_seconds)
        container, address = self._the_container, self._the_sandbox.ip_addresses[0]
        if self.template.prestop is not None:
            failure = run_hook(self.template.prestop, container, address, self.template.port, grace)
            if failure is not None:
                self._reports.event(Reason.FAILED_PRESTOP, "PreStopHook failed")
        left = max(grace - (time.monotonic() - killing_since), timings.MINIMUM_GRACE)
        time.sleep(timings.STOP_CALL)
        container.stop_signal(signal.SIGTERM)
        code = container.wait(left)
        if code is None:
            container.kill()
            code = container.wait(timings.MINIMUM_GRACE)
        if code is None:
            raise TimeoutError(f"the container of pod {self.identity.name} outlives SIGKILL")
        self._probes.ignore_results()
        return code if code >= 0 else 128 - code

    def _vanish(self) -> None:
        self._probes.ignore_results()
        self._probes.forget("readiness", "liveness")
        self._the_sandbox.remove()
        self._reports.removed()

    @property
    def _the_sandbox(self) -> Sandbox:
        assert self._sandbox is not None
        return self._sandbox

    @property
    def _the_container(self) -> Container:
        assert self._container is not None
        return self._container


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))
