"""The kubelet player does to a pod what the recordings show, in their order and at their times."""

import itertools
import random
import time
from typing import Any

import pytest

from agent.lab.controlplane.deployment import Deployment, Strategy
from agent.lab.controlplane.kubelet import Kubelet
from agent.lab.controlplane.pod_template import ExecHook, HttpProbe, PodTemplate, SleepHook
from agent.lab.controlplane.resources import ENDPOINT_SLICES, EVENTS, PODS
from agent.lab.controlplane.slice_controller import SliceController
from agent.lab.controlplane.slice_objects import ServiceIdentity
from agent.lab.controlplane.store import Store
from tests.recordings.reader import recorded_events
from tests.unit.lab.played_runtime import FakeMachine

READYZ = HttpProbe("/readyz")


def deployment(store: Store, machine: FakeMachine, replicas: int = 1) -> Deployment:
    kubelet = Kubelet(store, "node1", "10.9.0.1", machine)
    return Deployment(kubelet, "demo", "web", replicas, random.Random(1))


def what_watchers_see(event_type: str, pod: dict[str, Any]) -> tuple[Any, ...]:
    metadata, status = pod["metadata"], pod["status"]
    ready = [of["status"] for of in status.get("conditions", ()) if of["type"] == "Ready"]
    return (
        event_type,
        metadata.get("deletionGracePeriodSeconds"),
        status["phase"],
        ready,
        "podIP" in status,
        [list(of["state"]) for of in status.get("containerStatuses", ())],
        status.get("observedGeneration"),
    )


def steps(seen: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What differs from event to event; a grace period that is not 0 may be any."""
    visible = [(kind, grace == 0, *rest) for kind, grace, *rest in seen]
    return [event for event, _ in itertools.groupby(visible)]


def seen_of(store: Store, name: str, after: int = 1) -> list[tuple[Any, ...]]:
    _, changes = store.changes_after(PODS, after)
    return [what_watchers_see(change.type.value, change.after) for change in changes if change.key[1] == name]


def reasons(store: Store) -> list[str]:
    return [event["reason"] for _, event in store.at(EVENTS)[1]]


@pytest.mark.parametrize(
    ("case", "recorded_name", "prestop", "ignores"),
    [
        ("prestop-sleep", "web-6d9598d4f7-hbwbc", SleepHook(0), False),
        ("exits-at-once", "v-exit", None, False),
        ("ignores-sigterm", "v-ignore", None, True),
    ],
)
def test_watchers_see_a_deletion_as_recorded(
    case: str, recorded_name: str, prestop: SleepHook | None, ignores: bool
) -> None:
    recorded = [
        what_watchers_see(event.type, event.object)
        for event in recorded_events(f"deletions/{case}/watch-pods.jsonl")
        if event.object["metadata"]["name"] == recorded_name
    ]
    grace = recorded[0][1]
    store, machine = Store(), FakeMachine(ignores_sigterm=ignores)
    web = deployment(store, machine)
    web.start(
        PodTemplate(("server",), prestop=prestop, readiness=READYZ, grace_seconds=2 if ignores else grace)
    )
    pod, before = web.pods[0], store.revision
    web.delete(pod)
    pod.wait_deleted(10)
    played = seen_of(store, pod.identity.name, before)
    assert steps(played) == steps(recorded)


def test_watchers_see_a_creation_as_recorded() -> None:
    recorded = [
        what_watchers_see(event.type, event.object)
        for event in recorded_events("deletions/prestop-sleep/watch-pods.jsonl")
        if event.object["metadata"]["name"] == "web-6d9598d4f7-9xg6g"
    ]
    store = Store()
    web = deployment(store, FakeMachine())
    web.start(PodTemplate(("server",)))
    assert seen_of(store, web.pods[0].identity.name) == recorded


def test_the_first_deletion_time_is_recoverable_and_the_last_one_moves_back() -> None:
    store = Store()
    web = deployment(store, FakeMachine())
    web.start(PodTemplate(("server",), grace_seconds=30))
    web.delete(web.pods[0])
    web.wait_deleted()
    times = [
        change.after["metadata"]["deletionTimestamp"]
        for change in store.changes_after(PODS, 1)[1]
        if "deletionTimestamp" in change.after["metadata"]
    ]
    assert times[-1] < times[0]


def test_the_network_outlives_the_container_by_a_fifth_of_a_second() -> None:
    store, machine = Store(), FakeMachine()
    web = deployment(store, machine)
    web.start(PodTemplate(("server",)))
    web.delete(web.pods[0])
    web.wait_deleted()
    assert [what for _, what in machine.log] == ["stop signal", "pause killed", "network removed", "removed"]
    assert 0.19 < machine.when("network removed") - machine.when("stop signal") < 0.4


def test_the_grace_period_includes_the_prestop_hook_and_leaves_two_seconds() -> None:
    store, machine = Store(), FakeMachine(ignores_sigterm=True)
    web = deployment(store, machine)
    web.start(PodTemplate(("server",), grace_seconds=1, prestop=SleepHook(1)))
    started = time.monotonic()
    web.delete(web.pods[0])
    web.wait_deleted()
    assert 0.9 < machine.when("stop signal") - started < 1.4
    assert 1.9 < machine.when("kill") - machine.when("stop signal") < 2.3
    assert store.at(EVENTS)[1][0][1]["message"] == "Stopping container app"


def test_a_failed_hook_is_reported_and_the_stop_signal_follows_at_once() -> None:
    store, machine = Store(), FakeMachine(hook_exit_code=127)
    web = deployment(store, machine)
    web.start(PodTemplate(("server",), prestop=ExecHook(("sleep", "5"))))
    web.delete(web.pods[0])
    web.wait_deleted()
    assert sorted(reasons(store)) == ["FailedPreStopHook", "Killing"]
    assert machine.when("stop signal") - machine.when("hook") < 0.3


def test_a_failed_liveness_probe_restarts_the_container_without_a_deletion() -> None:
    store, machine = Store(), FakeMachine()
    web = deployment(store, machine)
    web.start(PodTemplate(("server",), readiness=READYZ, liveness=HttpProbe("/healthz")))
    pod = web.pods[0]
    machine.probes["liveness"](False)
    pod.wait_restarted(5)
    pod.wait_ready(5)
    now = store.get(PODS, "demo", pod.identity.name)
    assert now is not None
    status = now["status"]["containerStatuses"][0]
    assert "deletionTimestamp" not in now["metadata"]
    assert (status["restartCount"], status["ready"], list(status["lastState"])) == (1, True, ["terminated"])
    assert len({container.container_id for container in machine.containers}) == 2
    assert sorted(reasons(store)) == ["Killing", "Unhealthy"]


def test_variables_in_a_command_are_replaced_as_the_kubelet_does() -> None:
    machine = FakeMachine()
    web = deployment(Store(), machine)
    web.start(PodTemplate(("server", "/log/$(POD_NAME)", "$(NONE)")))
    assert machine.containers[0].argv == ("server", f"/log/{web.pods[0].identity.name}", "$(NONE)")


def test_a_careful_update_deletes_a_pod_only_when_its_replacement_is_ready() -> None:
    store = Store()
    web = deployment(store, FakeMachine(), replicas=2)
    web.start(PodTemplate(("server",), readiness=READYZ))
    old = [pod.identity.name for pod in web.pods]
    before = store.revision
    web.roll(PodTemplate(("server",), readiness=READYZ), Strategy(1, 0))
    web.wait_deleted()
    ready: set[str] = set()
    for change in store.changes_after(PODS, before)[1]:
        seen = what_watchers_see(change.type.value, change.after)
        if seen[3] == ["True"] and change.key[1] not in old:
            ready.add(change.key[1])
        if change.key[1] in old and seen[1] is not None:
            assert len(ready) > old.index(change.key[1])
    assert len(web.pods) == 2
    assert not {pod.identity.name for pod in web.pods} & set(old)


def test_the_slice_follows_a_deletion_within_a_moment() -> None:
    store = Store()
    slices = SliceController(store)
    service = ServiceIdentity("demo", "web", "u-1", "web-x", "u-2", 8080)
    slices.add(service)
    web = deployment(store, FakeMachine(), replicas=2)
    web.start(PodTemplate(("server",)))
    time.sleep(0.1)
    before = store.revision
    web.delete(web.pods[0])
    time.sleep(0.1)
    changed = store.changes_after(ENDPOINT_SLICES, before)[1][0].after
    slices.stop()
    web.wait_deleted()
    conditions = sorted(str(endpoint["conditions"]) for endpoint in changed["endpoints"])
    assert conditions == [
        "{'ready': False, 'serving': True, 'terminating': True}",
        "{'ready': True, 'serving': True, 'terminating': False}",
    ]
    assert "annotations" not in changed["metadata"]


def test_two_runs_with_one_seed_have_the_same_names_and_never_the_same_uids() -> None:
    first, second = deployment(Store(), FakeMachine()), deployment(Store(), FakeMachine())
    for web in (first, second):
        web.start(PodTemplate(("server",)))
    assert first.pods[0].identity.name == second.pods[0].identity.name
    assert first.pods[0].identity.uid != second.pods[0].identity.uid
