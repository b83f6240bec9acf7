"""What `agent doctor` prints and returns."""

import argparse
import json
from dataclasses import replace

import pytest

from agent.doctor import command
from agent.doctor.facts import Facts, Probe
from tests.unit.doctor.test_checks import GOOD


def play(facts: Facts, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr(command, "gather", lambda *asked: facts)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(flags))


def test_every_check_is_one_line_and_the_last_line_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(GOOD, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok    ") for line in lines[:-1])
    assert lines[-1] == "This node can run Lastcall: 0 failed, 0 to look at."


def test_a_failed_check_says_what_to_do_on_its_line_and_the_exit_code_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(replace(GOOD, bpftool=Probe(problem="not found")), monkeypatch) == 1
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if line.startswith("fail")]
    assert line.split()[:4] == ["fail", "bpftool", "not", "found."]
    assert "apt-get install bpftool" in line
    assert lines[-1].startswith("This node cannot run Lastcall: 1 failed")


def test_json_has_the_same_outcomes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(replace(GOOD, kube_proxy=Probe(problem="refused")), monkeypatch, "-o", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["usable"] is True
    by_name = {check["name"]: check for check in printed["checks"]}
    assert by_name["kube-proxy"]["status"] == "warn"
    assert by_name["kube-proxy"]["remedy"]
    assert by_name["BTF"] == {
        "name": "BTF",
        "status": "ok",
        "found": "/sys/kernel/btf/vmlinux",
        "remedy": None,
    }


def test_flags_default_to_their_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTCALL_KUBECONFIG", "/etc/lastcall/kubeconfig")
    monkeypatch.setenv("LASTCALL_NODE_NAME", "worker-1")
    monkeypatch.setenv("LASTCALL_KUBE_PROXY_METRICS", "http://127.0.0.1:1/metrics")
    monkeypatch.setenv("LASTCALL_CACHE_DIR", "/cache/lastcall")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([])
    assert args.kubeconfig == "/etc/lastcall/kubeconfig"
    assert args.node_name == "worker-1"
    assert args.kube_proxy_metrics == "http://127.0.0.1:1/metrics"
    assert args.cache_dir == "/cache/lastcall"
