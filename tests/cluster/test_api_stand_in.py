"""The API server stand-in speaks the protocol that real API servers were recorded speaking."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from kubernetes import client, config, watch

from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import ENDPOINT_SLICES, EVENTS, PODS, JsonObject


def a_pod(name: str, namespace: str = "shop", node: str = "lab-node", **labels: str) -> JsonObject:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "podIP": "10.9.0.7"},
    }


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def get(api: ApiServer, path: str, token: str | None = None, **query: Any) -> tuple[int, JsonObject]:
    connection = http.client.HTTPConnection(api.host, api.port, timeout=5)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


@contextmanager
def watching(api: ApiServer, path: str, **query: Any) -> Iterator[Iterator[JsonObject]]:
    connection = http.client.HTTPConnection(api.host, api.port, timeout=5)
    connection.request("GET", f"{path}?{urlencode({'watch': '1', **query})}")
    answer = connection.getresponse()
    assert answer.status == HTTPStatus.OK
    yield (json.loads(line) for line in answer)
    connection.close()


def names(listed: JsonObject) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_a_list_carries_the_revision_to_watch_from(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    _, listed = get(api, "/api/v1/namespaces/shop/pods")
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    with watching(api, "/api/v1/pods", resourceVersion=listed["metadata"]["resourceVersion"]) as events:
        api.store.create(PODS, a_pod("web-2"))
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "web-2")


def test_field_and_label_selectors_choose_objects(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("here", app="web"))
    api.store.create(PODS, a_pod("there", node="other", app="web"))
    api.store.create(PODS, a_pod("here", namespace="bank", app="db"))
    assert names(get(api, "/api/v1/pods", fieldSelector="spec.nodeName=lab-node")[1]) == ["here", "here"]
    assert names(get(api, "/api/v1/pods", labelSelector="app=web,app!=db")[1]) == ["here", "there"]
    assert names(get(api, "/api/v1/pods", fieldSelector="status.podIP=10.9.0.8")[1]) == []
    query = "metadata.namespace=bank,metadata.name=here"
    assert names(get(api, "/api/v1/pods", fieldSelector=query)[1]) == ["here"]


def test_an_unsupported_field_label_is_a_bad_request(api: ApiServer) -> None:
    status, body = get(api, "/api/v1/pods", fieldSelector="spec.colour=red")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert "spec.colour" in body["message"]


def test_events_are_chosen_by_the_object_they_are_about(api: ApiServer) -> None:
    for name in ("web-1", "web-2"):
        metadata = {"name": f"{name}.1", "namespace": "shop"}
        about = {"kind": "Pod", "namespace": "shop", "name": name}
        api.store.create(EVENTS, {"metadata": metadata, "involvedObject": about, "reason": "Killing"})
    _, listed = get(api, "/api/v1/events", fieldSelector="involvedObject.name=web-2,reason=Killing")
    assert names(listed) == ["web-2.1"]


def test_an_object_that_leaves_the_selector_is_reported_deleted(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1", app="web"))
    with watching(api, "/api/v1/pods", labelSelector="app=web") as events:
        assert next(events)["type"] == "ADDED"
        api.store.update(PODS, "shop", "web-1", lambda pod: a_pod("web-1", app="db"))
        assert next(events)["type"] == "DELETED"
        api.store.update(PODS, "shop", "web-1", lambda pod: a_pod("web-1", app="web"))
        assert next(events)["type"] == "ADDED"
        deleted = api.store.delete(PODS, "shop", "web-1")
        event = next(events)
    assert event == {"type": "DELETED", "object": deleted}


def test_pages_show_one_revision(api: ApiServer) -> None:
    for number in range(5):
        api.store.create(PODS, a_pod(f"web-{number}"))
    _, first = get(api, "/api/v1/pods", limit=2)
    assert first["metadata"]["remainingItemCount"] == 3
    api.store.create(PODS, a_pod("web-11"))
    api.store.delete(PODS, "shop", "web-4")
    _, rest = get(api, "/api/v1/pods", limit=9, **{"continue": first["metadata"]["continue"]})
    assert names(first) + names(rest) == [f"web-{number}" for number in range(5)]
    assert rest["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


def test_an_exact_revision_is_listed_as_it_was(api: ApiServer) -> None:
    created = api.store.create(PODS, a_pod("web-1"))
    api.store.delete(PODS, "shop", "web-1")
    version = created["metadata"]["resourceVersion"]
    assert names(get(api, "/api/v1/pods", resourceVersion=version, resourceVersionMatch="Exact")[1]) == [
        "web-1"
    ]
    assert names(get(api, "/api/v1/pods", resourceVersion=version)[1]) == []
    assert get(api, "/api/v1/pods", resourceVersion="999")[0] == 504


def test_compacted_revisions_are_gone(api: ApiServer) -> None:
    for number in range(3):
        api.store.create(PODS, a_pod(f"web-{number}"))
    _, page = get(api, "/api/v1/pods", limit=1)
    api.store.create(PODS, a_pod("web-9"))
    api.store.compact()
    status, body = get(api, "/api/v1/pods", limit=1, **{"continue": page["metadata"]["continue"]})
    assert (status, body["reason"], body["code"]) == (410, "Expired", 410)
    with watching(api, "/api/v1/pods", resourceVersion="1") as events:
        error = next(events)
        assert next(events, None) is None
    assert error["type"] == "ERROR"
    assert error["object"]["message"] == "too old resource version: 1 (5)"
    assert (error["object"]["reason"], error["object"]["code"]) == ("Expired", 410)


def test_an_expired_watch_can_be_an_http_status(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    api.store.compact()
    api.faults.expired_as_status = True
    status, body = get(api, "/api/v1/pods", watch="1", resourceVersion="1")
    assert (status, body["reason"]) == (410, "Expired")


def test_a_watch_list_ends_its_initial_events_with_a_bookmark(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    assert get(api, "/api/v1/pods", watch="1", **query)[0] == 422
    with watching(api, "/api/v1/pods", resourceVersionMatch="NotOlderThan", **query) as events:
        assert next(events)["type"] == "ADDED"
        bookmark = next(events)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"] == {
        "resourceVersion": str(api.store.revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


def test_bookmarks_come_when_asked_for() -> None:
    with ApiServer(bookmark_seconds=0.1) as api:
        api.store.create(ENDPOINT_SLICES, {"metadata": {"name": "web-x", "namespace": "shop"}})
        path = "/apis/discovery.k8s.io/v1/endpointslices"
        version = api.store.revision
        with watching(api, path, resourceVersion=version, allowWatchBookmarks="true") as events:
            api.store.create(PODS, a_pod("web-1"))
            assert next(events)["type"] == "BOOKMARK"
        with watching(api, path, resourceVersion=version, timeoutSeconds=1) as events:
            assert next(events, None) is None


def test_a_watch_ends_at_its_timeout(api: ApiServer) -> None:
    started = time.monotonic()
    with watching(api, "/api/v1/pods", resourceVersion=api.store.revision, timeoutSeconds=1) as events:
        assert next(events, None) is None
    assert 0.9 < time.monotonic() - started < 2


def test_requests_without_the_token_are_unauthorized() -> None:
    with ApiServer(token="secret") as api:
        assert get(api, "/version")[0] == 401
        assert get(api, "/api/v1/pods", token="wrong")[1]["reason"] == "Unauthorized"
        assert get(api, "/version", token="secret")[1]["gitVersion"].startswith("v1.")


def test_unknown_paths_and_objects_are_not_found(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    assert get(api, "/api/v1/namespaces/shop/pods/web-1")[1]["metadata"]["name"] == "web-1"
    for path in ("/api/v1/secrets", "/api/v1/pods/web-1", "/api/v1/namespaces/shop/pods/none", "/"):
        assert get(api, path)[0] == 404


def test_dropped_connections_end_watches_without_a_last_chunk(api: ApiServer) -> None:
    with socket.create_connection((api.host, api.port), timeout=5) as connection:
        connection.sendall(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: lab\r\n\r\n")
        api.store.create(PODS, a_pod("web-1"))
        with connection.makefile("rb") as stream:
            while b"web-1" not in stream.readline():
                continue
            api.drop_connections()
            assert stream.read() == b"\r\n"


def test_a_paused_server_refuses_and_comes_back_on_its_port(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    api.pause()
    with pytest.raises(ConnectionRefusedError):
        get(api, "/api/v1/pods")
    api.start()
    assert names(get(api, "/api/v1/pods")[1]) == ["web-1"]


def test_events_can_be_repeated_reordered_and_mixed_with_junk(api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    api.store.create(PODS, a_pod("web-2"))
    api.faults.repeat_events = 2
    api.faults.reverse_events = True
    with watching(api, "/api/v1/pods") as events:
        assert [next(events)["object"]["metadata"]["name"] for _ in range(4)] == ["web-2"] * 2 + ["web-1"] * 2
        api.faults.junk_line = b"{not json\n"
        api.store.create(PODS, a_pod("web-3"))
        with pytest.raises(json.JSONDecodeError):
            next(events)


def test_requests_and_bytes_are_counted(api: ApiServer) -> None:
    get(api, "/api/v1/pods")
    with watching(api, "/api/v1/pods") as events:
        api.store.create(PODS, a_pod("web-1"))
        next(events)
    traffic = api.traffic()
    assert traffic.requests == {("list", "pods"): 1, ("watch", "pods"): 1}
    assert traffic.bytes_sent > 100


def test_a_failing_server_answers_with_the_status_it_was_given(api: ApiServer) -> None:
    api.faults.fail_with = HTTPStatus.SERVICE_UNAVAILABLE
    status, body = get(api, "/api/v1/pods")
    assert (status, body["reason"]) == (503, "ServiceUnavailable")


def test_the_ordinary_client_lists_and_watches_with_the_kubeconfig(tmp_path: Path) -> None:
    with ApiServer(token="secret") as api:
        api.store.create(PODS, a_pod("web-1"))
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, "secret")
        core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        listed = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=lab-node")
        assert [pod.metadata.name for pod in listed.items] == ["web-1"]
        stream = watch.Watch().stream(
            core.list_namespaced_pod, "shop", resource_version=listed.metadata.resource_version
        )
        api.store.delete(PODS, "shop", "web-1")
        event = next(stream)
        stream.close()
        assert (event["type"], event["object"].metadata.name) == ("DELETED", "web-1")
