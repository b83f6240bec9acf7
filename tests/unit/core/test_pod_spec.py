"""A pod's API object -> its record; needs nothing."""

import contextlib
import copy
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.pod_spec import keeping_first_deletion, pod_of
from agent.core.records import Container, ContainerEnd, HookType, Pod, PreStop, Workload
from tests.recordings.reader import recorded_deletions, recorded_events

SECOND = 1_000_000_000

RECORDED_DELETIONS: dict[str, dict[str, tuple[int, float, PreStop | None, str]]] = {
    "eviction": {"x-evict": (1796002212, 6, None, "Pod/x-evict")},
    "exits-at-once": {"v-exit": (1796001201, 10, None, "Pod/v-exit")},
    "force-delete": {"x-force": (1796002159, 0, PreStop(HookType.SLEEP, seconds=2), "Pod/x-force")},
    "ignores-sigterm": {"v-ignore": (1796001191, 5, None, "Pod/v-ignore")},
    "liveness-restart": {},
    "prestop-exec": {
        "v-exec": (1796001161, 12, PreStop(HookType.EXEC, seconds=4, command="sh"), "Pod/v-exec")
    },
    "prestop-fails": {"v-failhook": (1796001177, 12, PreStop(HookType.EXEC, command="sh"), "Pod/v-failhook")},
    "prestop-http": {"v-http": (1796001170, 12, PreStop(HookType.HTTP, port=8080), "Pod/v-http")},
    "prestop-sleep": {
        "web-6d9598d4f7-hbwbc": (1796001100, 15, PreStop(HookType.SLEEP, seconds=3), "Deployment/web"),
    },
    "readiness-flip": {},
    "rollout-no-prestop": {
        "web-8456657dc7-7f99g": (1796002683, 15, None, "Deployment/web"),
        "web-8456657dc7-cw5zf": (1796002684, 15, None, "Deployment/web"),
        "web-8456657dc7-7f7h5": (1796002685, 15, None, "Deployment/web"),
    },
    "scale-to-zero": {
        f"web-655f6d7558-{suffix}": (1796002231, 15, PreStop(HookType.SLEEP, seconds=3), "Deployment/web")
        for suffix in ("xv2zk", "m6lrb", "5hsc7")
    },
}
"""Per case and deleted pod: second of the DELETE call, grace, hook, workload."""


def whole_pod() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "web-6d9598d4f7-hbwbc",
            "namespace": "demo",
            "uid": "a518d81c-1688-41c8-87b3-d25e4e43f51a",
            "labels": {"pod-template-hash": "6d9598d4f7"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-6d9598d4f7", "controller": True}],
        },
        "spec": {
            "nodeName": "node1",
            "terminationGracePeriodSeconds": 15,
            "containers": [
                {
                    "name": "app",
                    "ports": [
                        {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    ],
                    "lifecycle": {"preStop": {"httpGet": {"path": "/stop", "port": "http"}}},
                    "readinessProbe": {"httpGet": {"port": 8081}},
                    "livenessProbe": {"tcpSocket": {"port": "http"}},
                    "startupProbe": {"grpc": {"port": 9000}},
                },
            ],
            "initContainers": [
                {"name": "migrate"},
                {
                    "name": "proxy",
                    "restartPolicy": "Always",
                    "lifecycle": {"preStop": {"sleep": {"seconds": 4}}},
                },
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.244.0.4",
            "podIPs": [{"ip": "10.244.0.4"}, {"ip": "fd00::4"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "app",
                    "containerID": "containerd://" + "a" * 64,
                    "restartCount": 2,
                    "state": {"running": {"startedAt": "2026-11-30T01:11:22Z"}},
                },
            ],
            "initContainerStatuses": [
                {"name": "proxy", "state": {"terminated": {"exitCode": 137}}, "restartCount": 0},
            ],
        },
    }


def test_a_whole_pod_gives_a_whole_record() -> None:
    assert pod_of(whole_pod()) == Pod(
        uid="a518d81c-1688-41c8-87b3-d25e4e43f51a",
        namespace="demo",
        name="web-6d9598d4f7-hbwbc",
        node="node1",
        addresses=(ip_address("10.244.0.4"), ip_address("fd00::4")),
        host_network=False,
        workload=Workload("Deployment", "web"),
        containers=(
            Container("app", "a" * 64, PreStop(HookType.HTTP, port=8080), (8080,), 2, True, None),
            Container(
                "proxy",
                None,
                PreStop(HookType.SLEEP, seconds=4),
                (),
                0,
                False,
                137,
                sidecar=True,
                ended=ContainerEnd(None, 137, None, None, None),
            ),
        ),
        grace_seconds=15,
        deletion_requested_ns=None,
        finished=False,
        ready=True,
        cgroup_uid="a518d81c-1688-41c8-87b3-d25e4e43f51a",
        probe_ports=frozenset({8080, 8081, 9000}),
        disruption_reason=None,
    )


@pytest.mark.parametrize("case", recorded_deletions())
def test_a_recorded_deletion_gives_its_pods_times_and_hooks(case: str) -> None:
    known: dict[str, Pod] = {}
    for event in recorded_events(f"deletions/{case}/watch-pods.jsonl"):
        pod = pod_of(event.object)
        known[pod.uid] = keeping_first_deletion(known.get(pod.uid), pod)
        if known[pod.uid].deletion_requested_ns is not None:
            assert event.at_ns >= (known[pod.uid].deletion_requested_ns or 0)
    deleted = {
        pod.name: (
            (pod.deletion_requested_ns or 0) // SECOND,
            pod.grace_seconds,
            pod.containers[0].prestop,
            f"{pod.workload.kind}/{pod.workload.name}",
        )
        for pod in known.values()
        if pod.deletion_requested_ns is not None
    }
    assert deleted == RECORDED_DELETIONS[case]


def test_every_pod_of_a_long_recording_is_understood() -> None:
    pods = [
        pod_of(event.object)
        for event in recorded_events("pods-node1-watch-190s.jsonl")
        if event.type != "BOOKMARK"
    ]
    assert len(pods) == 154
    assert all(pod.containers for pod in pods)


def test_the_kubelets_last_delete_is_no_second_deletion() -> None:
    first = pod_of(deleted("2026-11-30T01:11:55Z", 15))
    last = pod_of(ended(deleted("2026-11-30T01:11:44Z", 0)))
    assert first.deletion_requested_ns == 1796001100 * SECOND
    kept = keeping_first_deletion(first, last)
    assert (kept.deletion_requested_ns, kept.grace_seconds) == (first.deletion_requested_ns, 15)


def ended(pod: dict[str, Any]) -> dict[str, Any]:
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
    return pod


def test_a_force_delete_after_another_delete_is_told_by_a_container_that_still_runs() -> None:
    first = pod_of(deleted("2026-11-30T01:11:55Z", 15))
    forced = keeping_first_deletion(first, pod_of(deleted("2026-11-30T01:11:44Z", 0)))
    assert (forced.deletion_requested_ns, forced.grace_seconds) == (first.deletion_requested_ns, 0)


def test_deleting_what_has_finished_does_not_change_its_grace_period() -> None:
    finished = replace(pod_of(ended(whole_pod())), finished=True)
    removed = keeping_first_deletion(finished, pod_of(ended(deleted("2026-11-30T01:11:44Z", 0))))
    assert removed.grace_seconds == finished.grace_seconds


def test_a_later_shorter_delete_shortens_the_grace_only() -> None:
    first = pod_of(deleted("2026-11-30T01:11:55Z", 15))
    shorter = pod_of(deleted("2026-11-30T01:11:45Z", 5))
    kept = keeping_first_deletion(first, shorter)
    assert (kept.deletion_requested_ns, kept.grace_seconds) == (first.deletion_requested_ns, 5)


def test_a_force_delete_is_a_deletion_with_grace_0() -> None:
    pod = pod_of(deleted("2026-11-30T01:11:55Z", 0))
    assert (pod.deletion_requested_ns, pod.grace_seconds) == (1796001115 * SECOND, 0)


def test_the_deletion_of_an_earlier_pod_of_the_same_name_does_not_count() -> None:
    earlier = pod_of(deleted("2026-11-30T01:11:55Z", 15))
    later = whole_pod()
    later["metadata"]["uid"] = "another"
    assert keeping_first_deletion(earlier, pod_of(later)).deletion_requested_ns is None


def deleted(deadline: str, grace: int) -> dict[str, Any]:
    pod = whole_pod()
    pod["metadata"].update(deletionTimestamp=deadline, deletionGracePeriodSeconds=grace)
    return pod


def test_an_eviction_says_so() -> None:
    reasons = {
        pod_of(event.object).disruption_reason
        for event in recorded_events("deletions/eviction/watch-pods.jsonl")
    }
    assert reasons == {"EvictionByEvictionAPI"}


def test_a_restart_shows_in_the_container() -> None:
    containers = [
        pod_of(event.object).containers[0]
        for event in recorded_events("deletions/liveness-restart/watch-pods.jsonl")
        if event.object["metadata"]["name"] == "x-live"
    ]
    assert [container.restarts for container in containers] == [0, 1, 1]
    assert containers[0].container_id != containers[1].container_id


def test_a_killed_container_shows_its_exit_code() -> None:
    *_, last = recorded_events("deletions/ignores-sigterm/watch-pods.jsonl")
    pod = pod_of(last.object)
    assert pod.finished
    assert not pod.ready
    assert (pod.containers[0].running, pod.containers[0].exit_code) == (False, 137)


def test_a_static_pod_is_known_by_its_configurations_hash() -> None:
    pod = whole_pod()
    pod["metadata"]["annotations"] = {
        "kubernetes.io/config.hash": "7fccb20b4bbb99e737878eab4bb685c1",
        "kubernetes.io/config.mirror": "7fccb20b4bbb99e737878eab4bb685c1",
    }
    assert pod_of(pod).cgroup_uid == "7fccb20b4bbb99e737878eab4bb685c1"


def test_a_hash_annotation_alone_makes_no_static_pod() -> None:
    pod = whole_pod()
    pod["metadata"]["annotations"] = {"kubernetes.io/config.hash": "x"}
    assert pod_of(pod).cgroup_uid == pod["metadata"]["uid"]


def test_a_pod_that_says_nothing_has_the_default_grace() -> None:
    pod = whole_pod()
    del pod["spec"]["terminationGracePeriodSeconds"]
    assert pod_of(pod).grace_seconds == 30


def test_a_pod_that_has_not_started_is_a_pod() -> None:
    pod = whole_pod()
    pod["status"] = {"phase": "Pending"}
    del pod["spec"]["nodeName"]
    record = pod_of(pod)
    assert record.node == ""
    assert record.addresses == ()
    assert [container.container_id for container in record.containers] == [None, None]
    assert (record.ready, record.finished) == (False, False)


@pytest.mark.parametrize(
    ("handler", "port"),
    [
        ({"port": "8082"}, 8082),
        ({"port": "nowhere"}, None),
        ({"port": 80, "host": "example.org"}, None),
    ],
)
def test_a_hook_has_a_port_only_if_it_is_the_pods(handler: dict[str, Any], port: int | None) -> None:
    pod = whole_pod()
    pod["spec"]["containers"][0]["lifecycle"]["preStop"] = {"httpGet": handler}
    assert pod_of(pod).containers[0].prestop == PreStop(HookType.HTTP, port=port)


@pytest.mark.parametrize("hook", [{}, {"tcpSocket": {"port": 8080}}])
def test_a_hook_that_the_kubelet_does_not_run_is_none(hook: dict[str, Any]) -> None:
    pod = whole_pod()
    pod["spec"]["containers"][0]["lifecycle"]["preStop"] = hook
    assert pod_of(pod).containers[0].prestop is None


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("metadata.uid", None, r"pod demo/web-6d9598d4f7-hbwbc: metadata\.uid is missing or empty"),
        ("metadata", 3, r"metadata is not an object: 3"),
        ("spec.nodeName", 5, r"spec\.nodeName is not text: 5"),
        ("spec.containers", {}, r"spec\.containers is not a list: dict"),
        ("spec.hostNetwork", "yes", r"spec\.hostNetwork is not true or false: 'yes'"),
        ("spec.terminationGracePeriodSeconds", True, r"is not a whole number: True"),
        ("spec.terminationGracePeriodSeconds", -1, r"is not a number of at least 0: -1"),
        ("metadata.deletionTimestamp", "soon", r"deletionTimestamp is not a time: 'soon'"),
        ("metadata.deletionTimestamp", "2026-11-30T01:11:55", r"has no time zone"),
        ("status.podIPs", [{"ip": "10.0.0.300"}], r"'10\.0\.0\.300' does not appear to be an IP"),
    ],
)
def test_a_broken_pod_is_refused_with_the_field_that_is_wrong(
    path: str, value: object, complaint: str
) -> None:
    pod = deleted("2026-11-30T01:11:55Z", 15)
    *above, last = path.split(".")
    place = pod
    for key in above:
        place = place[key]
    place[last] = value
    with pytest.raises(ValueError, match=complaint):
        pod_of(pod)


def test_a_deletion_without_its_grace_is_refused() -> None:
    pod = deleted("2026-11-30T01:11:55Z", 15)
    del pod["metadata"]["deletionGracePeriodSeconds"]
    with pytest.raises(ValueError, match="without deletionGracePeriodSeconds"):
        pod_of(pod)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_anything_but_a_pod_is_refused_and_never_breaks(value: object) -> None:
    with pytest.raises(ValueError, match=r"pod without a name: |not an object"):
        pod_of(value)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


@given(
    place=st.sampled_from(places(deleted("2026-11-30T01:11:55Z", 15))[1:]), value=JSON, remove=st.booleans()
)
def test_a_pod_with_one_hostile_field_is_a_record_or_a_value_error(
    place: tuple[str | int, ...], value: object, remove: bool
) -> None:
    pod: Any = copy.deepcopy(deleted("2026-11-30T01:11:55Z", 15))
    parent = pod
    for key in place[:-1]:
        parent = parent[key]
    if remove:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    with contextlib.suppress(ValueError):
        assert isinstance(pod_of(pod), Pod)


@pytest.mark.parametrize(
    ("command", "name", "seconds"),
    [
        (["sleep", "10"], "sleep", 10),
        (["/bin/sleep", "2.5"], "sleep", 2.5),
        (["/bin/sh", "-c", "sleep 5"], "sh", 5),
        (["sh", "-c", "/usr/bin/sleep 5s"], "sh", 5),
        (["/bin/sh", "-c", "nginx -s quit; sleep 5"], "sh", None),
        (["/usr/local/bin/a-name-longer-than-15"], "a-name-longer-t", None),
        (["sleep", "infinity"], "sleep", None),
        ([], None, None),
    ],
)
def test_an_exec_hook_has_the_name_of_its_process_and_the_length_of_a_mere_sleep(
    command: list[str], name: str | None, seconds: float | None
) -> None:
    pod = whole_pod()
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": command}}}
    assert pod_of(pod).containers[0].prestop == PreStop(HookType.EXEC, seconds=seconds, command=name)


def test_the_ends_of_the_present_run_and_of_the_one_before_are_told() -> None:
    pod = whole_pod()
    before = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-30T01:11:21Z"}
    status = pod["status"]["containerStatuses"][0]
    status["lastState"] = {"terminated": {**before, "containerID": "containerd://" + "b" * 64}}
    status["state"] = {"terminated": {"exitCode": 0, "signal": 15, "finishedAt": "0001-01-01T00:00:00Z"}}
    container = pod_of(pod).containers[0]
    assert container.ended_before == ContainerEnd("b" * 64, 137, None, "OOMKilled", 1796001081 * 10**9)
    assert container.ended == ContainerEnd(None, 0, 15, None, None)


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", None)])
def test_whether_the_sandbox_has_a_network_is_told_as_far_as_the_kubelet_knows(
    status: str, ready: bool | None
) -> None:
    pod = whole_pod()
    pod["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": status})
    pod["status"]["reason"] = "Evicted"
    assert (pod_of(pod).network_ready, pod_of(pod).status_reason) == (ready, "Evicted")
