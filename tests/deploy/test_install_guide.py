"""The installation guide: its kustomizations build, and what it names exists."""

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from agent.kernel.capabilities import KEPT_ONCE_ATTACHED
from agent.run.settings import parse_listen
from tests.deploy.manifests import DEPLOY, ROOT, container, least_capabilities
from tests.deploy.test_kustomize import built, needs_kubectl
from tests.unit.test_docs import code_lines

GUIDE = ROOT / "docs/install.md"
TEXT = GUIDE.read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
KUSTOMIZATIONS = [block for block in BLOCKS if "kind: Kustomization" in block]


def words() -> list[list[str]]:
    """The commands of the guide."""
    lines = [line for line in code_lines(re.sub(r"^```yaml\n.*?^```$", "", TEXT, flags=re.M | re.S)) if line]
    return [shlex.split(line) for line in lines]


@needs_kubectl
@pytest.mark.parametrize("text", KUSTOMIZATIONS, ids=["default", "least capabilities"])
def test_the_kustomizations_of_the_guide_build(text: str, tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(text)
    (agent,) = built(folder)["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert agent["image"] == "registry.example/lastcall:0.1.0"
    assert agent["securityContext"]["privileged"] is ("components" not in yaml.safe_load(text))


def test_there_are_the_default_and_the_narrower_one() -> None:
    assert len(KUSTOMIZATIONS) == 2


def test_folders_and_scripts_of_the_commands_exist() -> None:
    for command in words():
        for flag, value in itertools.pairwise(command):
            if flag == "-k" and value != "cluster":
                assert (ROOT / value / "kustomization.yaml").is_file(), command
        for word in command:
            if word.startswith("scripts/"):
                assert (ROOT / word).is_file(), command


def test_the_image_is_built_under_the_name_that_the_manifests_have() -> None:
    (kustomization,) = yaml.safe_load_all((DEPLOY / "kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    assert container()["image"] == image["name"]
    built_as = {word for command in words() for word in command if word.startswith("IMAGE=")}
    assert built_as == {f"IMAGE={image['newName']}:{image['newTag']}"}


def test_the_table_of_capabilities_is_the_overlays() -> None:
    section = TEXT.partition("## Least capabilities")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert [row[0].strip("`") for row in rows] == list(least_capabilities())
    for name, _, kept in rows:
        assert (kept == "yes") is (f"CAP_{name.strip('`')}" in KEPT_ONCE_ATTACHED), name


def test_the_pod_monitor_finds_the_pods_and_their_port() -> None:
    (monitor,) = (yaml.safe_load(block) for block in BLOCKS if "kind: PodMonitor" in block)
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": container()["ports"][0]["name"]}]


def patch_of_the_address() -> str:
    (text,) = (block for block in BLOCKS if block.startswith("patches:"))
    return str(text)


def test_who_is_told_to_listen_on_one_address_is_told_to_have_it_probed() -> None:
    (patch,) = yaml.safe_load(patch_of_the_address())["patches"]
    (agent,) = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]["containers"]
    (listen,) = agent["env"]
    assert listen["name"] == "LASTCALL_LISTEN"
    host, port = parse_listen(listen["value"])
    assert port == container()["ports"][0]["containerPort"]
    probes = {name for name in container() if name.endswith("Probe")}
    assert {name: agent[name]["httpGet"]["host"] for name in probes} == dict.fromkeys(probes, host)


@needs_kubectl
def test_the_patch_of_the_address_keeps_the_rest_of_the_probes(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(KUSTOMIZATIONS[0] + patch_of_the_address())
    (agent,) = built(folder)["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    for name in (name for name in container() if name.endswith("Probe")):
        before = container()[name]
        assert agent[name] == {**before, "httpGet": {**before["httpGet"], "host": "127.0.0.1"}}
    assert {variable["name"] for variable in agent["env"]} > {
        variable["name"] for variable in container()["env"]
    }
