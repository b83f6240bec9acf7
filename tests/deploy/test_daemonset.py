"""The DaemonSet asks of the agent what the agent has, and gives it what it asks for."""

import argparse
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.registry import Collector

from agent.kernel.btf_headers import DEFAULT_CACHE
from agent.kernel.capabilities import KEPT_ONCE_ATTACHED, NEEDED_CAPABILITIES, USEFUL_CAPABILITIES
from agent.outputs.http_server import HttpServer
from agent.run.command import DEFAULT_LISTEN, add_arguments
from agent.run.settings import parse_listen
from tests.deploy.manifests import ROOT, container, daemonset, least_capabilities, resources

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
API_PATH = re.compile(r"\"/(?:api/v1|apis/([a-z0-9.-]+)/v[0-9a-z]+)((?:/[\w{}.-]+)+)\"")


def test_every_variable_of_the_manifest_is_one_that_the_agent_reads() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    names = [variable["name"] for variable in container()["env"]]
    assert "LASTCALL_NODE_NAME" in names
    for name in names:
        assert "--" + name.removeprefix("LASTCALL_").lower().replace("_", "-") in flags, name


def test_the_node_name_is_the_nodes_in_the_api() -> None:
    env = {each["name"]: each for each in container()["env"]}
    assert env["LASTCALL_NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_port_is_the_one_that_the_agent_listens_on() -> None:
    _, port = parse_listen(DEFAULT_LISTEN)
    (declared,) = container()["ports"]
    assert (declared["containerPort"], declared["hostPort"]) == (port, port)
    annotations = daemonset()["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port)


class _Nothing(Collector):
    def collect(self) -> Iterator[Any]:
        return iter(())


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    made.start(_Nothing(), lambda: None)
    yield made
    made.stop()


def test_every_path_that_is_asked_for_is_answered(server: HttpServer) -> None:
    (port,) = container()["ports"]
    probes = {name: container()[name]["httpGet"] for name in PROBES}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    paths = {name: probe["path"] for name, probe in probes.items()}
    assert paths["readinessProbe"] == "/readyz"
    annotations = daemonset()["spec"]["template"]["metadata"]["annotations"]
    for path in (*paths.values(), annotations["prometheus.io/path"]):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            assert answer.status == 200, path


def test_an_api_server_that_is_away_restarts_no_agent() -> None:
    """Only /readyz depends on it."""
    assert {container()[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe")} == {
        "/healthz"
    }


def test_the_cache_is_a_folder_in_a_volume_and_not_the_volume_itself() -> None:
    """A volume's own folder can be written by others, which the agent refuses."""
    variables = {each["name"]: each.get("value") for each in container()["env"]}
    (mount,) = container()["volumeMounts"]
    assert Path(mount["mountPath"]) in Path(variables["LASTCALL_CACHE_DIR"] or DEFAULT_CACHE).parents
    (volume,) = daemonset()["spec"]["template"]["spec"]["volumes"]
    assert volume["name"] == mount["name"]
    assert "emptyDir" in volume


def test_nothing_of_the_host_is_mounted() -> None:
    volumes = daemonset(least_capabilities=True)["spec"]["template"]["spec"]["volumes"]
    assert [volume for volume in volumes if "hostPath" in volume] == []


def test_it_runs_on_every_node_in_the_nodes_own_namespaces() -> None:
    spec = daemonset()["spec"]["template"]["spec"]
    assert (spec["hostPID"], spec["hostNetwork"]) == (True, True)
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"


def test_the_namespace_has_a_quota_for_the_priority_that_the_pods_have() -> None:
    """Without one GKE refuses them."""
    quota = next(each for each in resources() if each["kind"] == "ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == [daemonset()["spec"]["template"]["spec"]["priorityClassName"]]
    assert quota["metadata"]["namespace"] == daemonset()["metadata"]["namespace"]


@pytest.mark.parametrize("least", [False, True])
def test_the_root_file_system_is_read_only_and_the_user_root(least: bool) -> None:
    context = container(least_capabilities=least)["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["runAsUser"] == 0
    assert context["privileged"] is not least


def test_the_overlay_adds_exactly_what_the_agent_says_that_it_uses() -> None:
    assert {f"CAP_{name}" for name in least_capabilities()} == {*NEEDED_CAPABILITIES, *USEFUL_CAPABILITIES}
    assert {*NEEDED_CAPABILITIES} <= KEPT_ONCE_ATTACHED <= {*NEEDED_CAPABILITIES, *USEFUL_CAPABILITIES}


def role() -> dict[str, Any]:
    return next(each for each in resources() if each["kind"] == "ClusterRole")


def test_the_role_reads_four_resources_and_does_nothing_else() -> None:
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in role()["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    read = {"get", "list", "watch"}
    assert granted == {
        ("", "pods"): read,
        ("", "events"): read,
        ("", "nodes"): read,
        ("discovery.k8s.io", "endpointslices"): read,
    }
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in role()["rules"])


def requested() -> set[tuple[str, str]]:
    """API group and resource of every path in the code of the DaemonSet's process."""
    found = set()
    for package in ("cluster", "doctor", "run"):
        for path in (ROOT / "agent" / package).glob("*.py"):
            for group, rest in API_PATH.findall(path.read_text()):
                words = rest.strip("/").split("/")
                if words[0] == "namespaces" and len(words) > 2:
                    words = words[2:]
                found.add((group, words[0]))
    return found


def test_everything_that_the_agent_asks_the_api_server_for_is_granted() -> None:
    asked = requested()
    assert {("", "pods"), ("", "nodes"), ("discovery.k8s.io", "endpointslices")} <= asked
    rules = role()["rules"]
    for group, resource in asked:
        assert any(group in r["apiGroups"] and resource in r["resources"] for r in rules), (group, resource)


def test_the_role_is_bound_to_the_account_that_the_pods_have() -> None:
    by_kind = {each["kind"]: each for each in resources()}
    account = by_kind["ServiceAccount"]["metadata"]
    binding = by_kind["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == role()["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    pod = by_kind["DaemonSet"]
    assert pod["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
    namespaces = {
        by_kind["Namespace"]["metadata"]["name"],
        pod["metadata"]["namespace"],
        account["namespace"],
    }
    assert namespaces == {"lastcall"}


def test_the_selector_finds_the_pods() -> None:
    spec = daemonset()["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
