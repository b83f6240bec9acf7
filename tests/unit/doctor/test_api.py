"""How far a request for pods gets."""

from pathlib import Path

from agent.doctor.api import ask_api
from agent.doctor.facts import ApiAccess
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig

SECONDS = 2.0


def test_a_server_that_lists_pods_is_named(tmp_path: Path) -> None:
    with ApiServer() as server:
        api = ask_api(str(write_kubeconfig(tmp_path / "config", server.url)), "node-1", SECONDS)
    assert api.access is ApiAccess.ANSWERED
    assert server.url in api.detail


def test_a_wrong_token_is_forbidden(tmp_path: Path) -> None:
    with ApiServer(token="right") as server:
        api = ask_api(str(write_kubeconfig(tmp_path / "config", server.url, "wrong")), "node-1", SECONDS)
    assert api.access is ApiAccess.FORBIDDEN
    assert "401" in api.detail


def test_a_server_that_is_away_is_unreachable(tmp_path: Path) -> None:
    api = ask_api(str(write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")), "node-1", SECONDS)
    assert api.access is ApiAccess.UNREACHABLE
    assert "\n" not in api.detail


def test_a_missing_or_mangled_kubeconfig_is_unreadable(tmp_path: Path) -> None:
    mangled = tmp_path / "config"
    mangled.write_text("clusters: [\n")
    for path in (tmp_path / "missing", mangled):
        api = ask_api(str(path), "node-1", SECONDS)
        assert api.access is ApiAccess.UNREADABLE
        assert "\n" not in api.detail


def test_nothing_given_outside_a_cluster_is_not_configured() -> None:
    assert ask_api(None, "node-1", SECONDS).access is ApiAccess.NOT_CONFIGURED
