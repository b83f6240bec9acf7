"""What a workload declares about its pods, as far as a pod's death depends on it."""

from dataclasses import dataclass
from typing import TypeAlias

from agent.lab.controlplane.resources import JsonObject


@dataclass(frozen=True, slots=True)
class SleepHook:
    """preStop: the kubelet itself waits."""

    seconds: int


@dataclass(frozen=True, slots=True)
class ExecHook:
    """preStop: a command run in the container; it fails if its exit code is not 0."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpHook:
    """preStop: a GET from the node to the pod; it fails on a status of 400 and above or without an answer."""

    path: str


PreStopHook: TypeAlias = SleepHook | ExecHook | HttpHook


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """An httpGet probe with the kubelet's meanings of its fields; times in seconds."""

    path: str
    period_seconds: int = 1
    timeout_seconds: int = 1
    failure_threshold: int = 1


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The template of a workload's pods: one container `app` that serves HTTP on `port`."""

    argv: tuple[str, ...]
    port: int = 8080
    grace_seconds: int = 30
    prestop: PreStopHook | None = None
    readiness: HttpProbe | None = None
    liveness: HttpProbe | None = None


CONTAINER = "app"
"""The name of a pod's only container."""


def pod_spec(template: PodTemplate) -> JsonObject:
    """The spec that the template gives a pod."""
    container: JsonObject = {
        "name": CONTAINER,
        "image": "registry.example/lab/server:1",
        "command": list(template.argv),
        "ports": [{"name": "http", "containerPort": template.port, "protocol": "TCP"}],
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    if template.prestop is not None:
        container["lifecycle"] = {"preStop": _handler(template.prestop, template.port)}
    if template.readiness is not None:
        container["readinessProbe"] = _probe(template.readiness, template.port)
    if template.liveness is not None:
        container["livenessProbe"] = _probe(template.liveness, template.port)
    return {
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": template.grace_seconds,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _handler(hook: PreStopHook, port: int) -> JsonObject:
    match hook:
        case SleepHook(seconds):
            return {"sleep": {"seconds": seconds}}
        case ExecHook(argv):
            return {"exec": {"command": list(argv)}}
        case HttpHook(path):
            return {"httpGet": {"path": path, "port": port, "scheme": "HTTP"}}


def _probe(probe: HttpProbe, port: int) -> JsonObject:
    return {
        "httpGet": {"path": probe.path, "port": port, "scheme": "HTTP"},
        "timeoutSeconds": probe.timeout_seconds,
        "periodSeconds": probe.period_seconds,
        "successThreshold": 1,
        "failureThreshold": probe.failure_threshold,
    }
