"""The kube-proxy player applies changes late, in order, and its metrics tell of it in kube-proxy's words."""

import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from agent.lab.controlplane.endpoints import Backend
from agent.lab.controlplane.kube_proxy import KubeProxy
from agent.lab.controlplane.kube_proxy_metrics import SyncRecord
from agent.lab.controlplane.resources import ENDPOINT_SLICES, PODS, JsonObject
from agent.lab.controlplane.slice_objects import ServiceIdentity, new_slice, replace_endpoints
from agent.lab.controlplane.store import Store
from tests.recordings.reader import RECORDINGS

SERVICE = ServiceIdentity("shop", "web", "u-1", "web-x", "u-2", 8080)


def values(page: str) -> dict[tuple[str, str | None], float]:
    return {
        (sample.name, sample.labels.get("ip_family")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def scrape(kube_proxy: KubeProxy) -> dict[tuple[str, str | None], float]:
    with urllib.request.urlopen(kube_proxy.metrics_url) as answer:
        return values(answer.read().decode())


def test_its_lines_are_those_of_a_real_kube_proxy() -> None:
    recorded = (RECORDINGS / "kube-proxy" / "nftables.txt").read_text()
    real = {line.rsplit(" ", 1)[0] for line in recorded.splitlines()}
    played = [line.rsplit(" ", 1)[0] for line in SyncRecord(1796001341.4824836).text().splitlines()]
    assert set(played) <= real
    assert "1.7960013414824836e+09" in SyncRecord(1796001341.4824836).text()


def test_a_change_is_pending_until_its_delay_is_over() -> None:
    store = Store()
    kube_proxy = KubeProxy(store)
    applied: list[list[Backend]] = []
    pod = {"metadata": {"namespace": "shop", "name": "web-1"}, "status": {"podIPs": [{"ip": "10.9.0.7"}]}}
    store.create(PODS, pod)
    store.create(ENDPOINT_SLICES, new_slice(SERVICE, time.time()))
    kube_proxy.follow(SERVICE, applied.append, 0.3)
    endpoint = {
        "addresses": ["10.9.0.7"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"namespace": "shop", "name": "web-1"},
    }
    changed = time.time()
    store.update(ENDPOINT_SLICES, "shop", "web-x", lambda item: replace_endpoints(item, [endpoint], None))
    time.sleep(0.1)
    pending, between = scrape(kube_proxy), list(applied)
    time.sleep(0.4)
    done = scrape(kube_proxy)
    kube_proxy.stop()
    assert between == []
    assert applied == [[Backend(("10.9.0.7",), 8080)]]
    name = "kubeproxy_sync_proxy_rules_endpoint_changes_pending"
    assert (pending[name, None], done[name, None]) == (1, 0)
    synced = done["kubeproxy_sync_proxy_rules_last_timestamp_seconds", "IPv4"]
    queued = done["kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "IPv4"]
    assert 0.25 < synced - queued < 0.6
    assert 0 <= queued - changed < 0.2


def test_terminating_endpoints_are_used_when_no_ready_one_is_left() -> None:
    store = Store()
    kube_proxy = KubeProxy(store)
    applied: list[list[Backend]] = []
    for name, address in (("web-1", "10.9.0.7"), ("web-2", "10.9.0.8")):
        metadata = {"namespace": "shop", "name": name}
        store.create(PODS, {"metadata": metadata, "status": {"podIPs": [{"ip": address}]}})
    store.create(ENDPOINT_SLICES, new_slice(SERVICE, time.time()))
    kube_proxy.follow(SERVICE, applied.append, 0.0)

    def endpoint(name: str, *, serving: bool) -> JsonObject:
        conditions = {"ready": False, "serving": serving, "terminating": True}
        return {"conditions": conditions, "targetRef": {"namespace": "shop", "name": name}}

    endpoints = [endpoint("web-1", serving=True), endpoint("web-2", serving=False)]
    store.update(ENDPOINT_SLICES, "shop", "web-x", lambda item: replace_endpoints(item, endpoints, None))
    time.sleep(0.2)
    kube_proxy.stop()
    assert applied == [[Backend(("10.9.0.7",), 8080)]]
