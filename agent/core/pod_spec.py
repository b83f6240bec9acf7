"""A pod's API object -> the record of what matters about its life and death."""

import re
from dataclasses import replace
from ipaddress import ip_address

from agent.core.api_time import nanoseconds
from agent.core.fields import Fields
from agent.core.records import Address, Container, ContainerEnd, HookType, Pod, PreStop
from agent.core.workload import workload_of

_DEFAULT_GRACE_SECONDS = 30
"""terminationGracePeriodSeconds where a pod does not say (Kubernetes API reference, PodSpec)."""

_MIRROR = "kubernetes.io/config.mirror"
_CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotations of the API object that mirrors a static pod; the hash stands in the pod's cgroup path."""

_LONGEST_PROCESS_NAME = 15
"""Bytes of a process's name that the kernel keeps (TASK_COMM_LEN - 1)."""

_SHELL = re.compile(r"(?:/usr)?(?:/bin/)?(?:sh|bash|ash|dash)")
_SLEEP = re.compile(r"\s*(?:(?:/usr)?/bin/)?sleep\s+(?P<seconds>\d{1,6}(?:\.\d{1,6})?)s?\s*", re.ASCII)

_PORT_AS_TEXT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


def pod_of(api_object: object) -> Pod:
    """The record of a pod's API object (decoded JSON); `node` is empty until the pod is scheduled.

    Raises ValueError, with the pod and the field in its text, if the object is not a whole pod.
    """
    fields = Fields.of(api_object, "")
    metadata = fields.within("metadata")
    try:
        return _pod(fields, metadata)
    except ValueError as error:
        raise ValueError(f"pod {_shown_name(metadata)}: {error}") from None


def keeping_first_deletion(known: Pod | None, current: Pod) -> Pod:
    """`current` with the deletion that `known`, an earlier record of the same pod, already had.

    The kubelet ends every pod with a delete of grace 0, which moves deletionTimestamp: it is not a second
    deletion. A later delete with a shorter grace does change the grace.
    """
    if known is None or known.uid != current.uid or current.deletion_requested_ns is None:
        return current
    if known.deletion_requested_ns is None:
        # Deleting what has finished takes no time, whatever it declares.
        return replace(current, grace_seconds=known.grace_seconds) if known.finished else current
    forced = current.grace_seconds == 0 and any(container.running for container in current.containers)
    grace_seconds = current.grace_seconds if forced else current.grace_seconds or known.grace_seconds
    return replace(current, deletion_requested_ns=known.deletion_requested_ns, grace_seconds=grace_seconds)


def _pod(fields: Fields, metadata: Fields) -> Pod:
    spec, status = fields.within("spec"), fields.within("status")
    deletion_requested_ns, grace_seconds = _deletion(metadata, spec)
    uid = metadata.text("uid")
    conditions = status.each("conditions")
    main, sidecars = spec.each("containers"), _sidecars(spec)
    return Pod(
        uid=uid,
        namespace=metadata.text("namespace"),
        name=metadata.text("name"),
        node=spec.optional_text("nodeName") or "",
        addresses=_addresses(status),
        host_network=bool(spec.flag("hostNetwork")),
        workload=workload_of(fields),
        containers=_containers(main, sidecars, status),
        grace_seconds=grace_seconds,
        deletion_requested_ns=deletion_requested_ns,
        finished=status.optional_text("phase") in ("Succeeded", "Failed"),
        ready=_holds(conditions, "Ready") is not None,
        cgroup_uid=_cgroup_uid(metadata, uid),
        probe_ports=frozenset(port for container in (*main, *sidecars) for port in _probe_ports(container)),
        disruption_reason=_disruption_reason(conditions),
        status_reason=status.optional_text("reason") or None,
        network_ready=_status_of(conditions, "PodReadyToStartContainers"),
    )


def _shown_name(metadata: Fields) -> str:
    namespace, name = metadata.content.get("namespace"), metadata.content.get("name")
    return f"{namespace}/{name}" if isinstance(namespace, str) and isinstance(name, str) else "without a name"


def _deletion(metadata: Fields, spec: Fields) -> tuple[int | None, float]:
    declared = spec.count("terminationGracePeriodSeconds")
    deadline = metadata.optional_text("deletionTimestamp")
    if deadline is None:
        return None, float(_DEFAULT_GRACE_SECONDS if declared is None else declared)
    grace = metadata.count("deletionGracePeriodSeconds")
    if grace is None:
        raise ValueError("metadata.deletionTimestamp is set without deletionGracePeriodSeconds")
    return nanoseconds(deadline, "metadata.deletionTimestamp") - grace * 1_000_000_000, float(grace)


def _addresses(status: Fields) -> tuple[Address, ...]:
    texts = [entry.text("ip") for entry in status.each("podIPs")]
    first = status.optional_text("podIP")
    if not texts and first:
        texts = [first]
    return tuple(ip_address(text) for text in texts)


def _sidecars(spec: Fields) -> list[Fields]:
    return [
        container
        for container in spec.each("initContainers")
        if container.optional_text("restartPolicy") == "Always"
    ]


def _containers(main: tuple[Fields, ...], sidecars: list[Fields], status: Fields) -> tuple[Container, ...]:
    statuses = {
        entry.text("name"): entry
        for key in ("containerStatuses", "initContainerStatuses")
        for entry in status.each(key)
    }
    declared = [(container, False) for container in main] + [(container, True) for container in sidecars]
    return tuple(
        _container(container, statuses.get(container.text("name"), Fields({}, "status")), sidecar)
        for container, sidecar in declared
    )


def _container(declared: Fields, status: Fields, sidecar: bool) -> Container:
    state = status.within("state")
    return Container(
        name=declared.text("name"),
        container_id=_container_id(status),
        prestop=_prestop(declared),
        ports=tuple(port for _, port in _tcp_ports(declared)),
        restarts=status.count("restartCount") or 0,
        running=state.has("running"),
        exit_code=state.within("terminated").number("exitCode"),
        sidecar=sidecar,
        ended=_end(state),
        ended_before=_end(status.within("lastState")),
    )


def _end(state: Fields) -> ContainerEnd | None:
    terminated = state.within("terminated")
    exit_code = terminated.number("exitCode")
    if exit_code is None:
        return None
    finished = terminated.optional_text("finishedAt") or ""
    return ContainerEnd(
        container_id=_container_id(terminated),
        exit_code=exit_code,
        signal=terminated.number("signal"),
        reason=terminated.optional_text("reason"),
        # Year 1 stands for a time that the kubelet does not know.
        finished_ns=nanoseconds(finished, f"{terminated.path}.finishedAt") if finished > "1970" else None,
    )


def _container_id(status: Fields) -> str | None:
    identifier = status.optional_text("containerID")
    return identifier.rpartition("://")[2] or None if identifier else None


def _tcp_ports(container: Fields) -> list[tuple[str | None, int]]:
    return [
        (entry.optional_text("name"), port)
        for entry in container.each("ports")
        if entry.optional_text("protocol") in (None, "", "TCP")
        and (port := entry.port("containerPort")) is not None
    ]


def _prestop(container: Fields) -> PreStop | None:
    hook = container.within("lifecycle").within("preStop")
    if hook.has("sleep"):
        return PreStop(HookType.SLEEP, seconds=float(hook.within("sleep").count("seconds") or 0))
    if hook.has("exec"):
        command = hook.within("exec").texts("command")
        return PreStop(HookType.EXEC, seconds=_slept_seconds(command), command=_process_name(command))
    if hook.has("httpGet"):
        return PreStop(HookType.HTTP, port=_port_of_the_pod(container, hook.within("httpGet")))
    return None


def _process_name(command: tuple[str, ...]) -> str | None:
    name = next(iter(command), "").rpartition("/")[2].encode()[:_LONGEST_PROCESS_NAME]
    return name.decode(errors="replace") or None


def _slept_seconds(command: tuple[str, ...]) -> float | None:
    """How long a command sleeps that does nothing else, by itself or through a shell."""
    through_a_shell = len(command) == 3 and command[1] == "-c" and _SHELL.fullmatch(command[0])
    sleep = _SLEEP.fullmatch(command[2] if through_a_shell else " ".join(command))
    return float(sleep["seconds"]) if sleep else None


def _probe_ports(container: Fields) -> list[int]:
    ports = [
        _port_of_the_pod(container, probe.within(handler))
        for probe in map(container.within, ("livenessProbe", "readinessProbe", "startupProbe"))
        for handler in ("httpGet", "tcpSocket", "grpc")
    ]
    return [port for port in ports if port is not None]


def _port_of_the_pod(container: Fields, handler: Fields) -> int | None:
    """The port that a probe or hook connects to, given by number or name; None if it is another host's."""
    if handler.optional_text("host"):
        return None
    if isinstance(handler.content.get("port"), str):
        name = handler.text("port")
        named = next((port for known, port in _tcp_ports(container) if known == name), None)
        return int(name) if named is None and _PORT_AS_TEXT.fullmatch(name) else named
    return handler.port("port")


def _status_of(conditions: tuple[Fields, ...], condition: str) -> bool | None:
    """Whether a condition holds; None if it is not among them, or unknown."""
    statuses = (
        entry.optional_text("status") for entry in conditions if entry.optional_text("type") == condition
    )
    return {"True": True, "False": False}.get(next(statuses, None) or "")


def _holds(conditions: tuple[Fields, ...], condition: str) -> Fields | None:
    return next(
        (
            entry
            for entry in conditions
            if entry.optional_text("type") == condition and entry.optional_text("status") == "True"
        ),
        None,
    )


def _disruption_reason(conditions: tuple[Fields, ...]) -> str | None:
    disruption = _holds(conditions, "DisruptionTarget")
    return disruption.optional_text("reason") if disruption else None


def _cgroup_uid(metadata: Fields, uid: str) -> str:
    annotations = metadata.within("annotations")
    mirrored = annotations.optional_text(_MIRROR)
    return (annotations.optional_text(_CONFIG_HASH) or mirrored or uid) if mirrored else uid
