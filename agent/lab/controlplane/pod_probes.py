"""The probes of one pod's container, and what follows from their results."""

from collections.abc import Callable

from agent.lab.controlplane.pod_objects import PodIdentity
from agent.lab.controlplane.pod_template import CONTAINER, HttpProbe, PodTemplate
from agent.lab.controlplane.runtime import Runtime


class PodProbes:
    """Runs the template's probes and calls back: `on_readiness` on each change, `on_liveness_failed` once.

    Call `watch` for each new container, and `forget` when it ends; results that come later are ignored.
    """

    def __init__(
        self,
        runtime: Runtime,
        identity: PodIdentity,
        template: PodTemplate,
        on_readiness: Callable[[bool], None],
        on_liveness_failed: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._identity = identity
        self._template = template
        self._on_readiness = on_readiness
        self._on_liveness_failed = on_liveness_failed
        self._generation = 0
        self._ready = False
        self._readiness_failures = 0
        self._liveness_failures = 0

    def watch(self, address: str) -> None:
        """Begin to probe a new container."""
        self._generation += 1
        self._ready = False
        self._readiness_failures = self._liveness_failures = 0
        for name, probe, on_result in (
            ("readiness", self._template.readiness, self._readiness_result),
            ("liveness", self._template.liveness, self._liveness_result),
        ):
            if probe is not None:
                self._watch(name, probe, address, on_result)

    def ignore_results(self) -> None:
        """The container has ended: probes may still run, but say nothing about the pod any more."""
        self._generation += 1

    def forget(self, *names: str) -> None:
        """Stop probes (`readiness`, `liveness`)."""
        for name in names:
            self._runtime.forget_probe(self._full_name(name))

    def _watch(
        self, name: str, probe: HttpProbe, address: str, on_result: Callable[[HttpProbe, bool], None]
    ) -> None:
        generation = self._generation

        def current_result(passed: bool) -> None:
            if generation == self._generation:
                on_result(probe, passed)

        self._runtime.watch_probe(
            self._full_name(name),
            address,
            self._template.port,
            probe.path,
            probe.period_seconds,
            probe.timeout_seconds,
            current_result,
        )

    def _readiness_result(self, probe: HttpProbe, passed: bool) -> None:
        self._readiness_failures = 0 if passed else self._readiness_failures + 1
        ready = passed or (self._ready and self._readiness_failures < probe.failure_threshold)
        if ready is not self._ready:
            self._ready = ready
            self._on_readiness(ready)

    def _liveness_result(self, probe: HttpProbe, passed: bool) -> None:
        self._liveness_failures = 0 if passed else self._liveness_failures + 1
        if self._liveness_failures == probe.failure_threshold:
            self._on_liveness_failed()

    def _full_name(self, name: str) -> str:
        return f"{self._identity.namespace}/{self._identity.name}/{CONTAINER}/{name}"
