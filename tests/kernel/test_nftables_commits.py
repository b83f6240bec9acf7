"""Commits of real nft, in a network namespace of the test's own."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.records import NftablesCommitted
from agent.kernel.nftables_commits import NftablesCommits
from agent.lab.node.client_namespace import ClientNamespace
from tests.conftest import SYSTEM_PATH
from tests.kernel.recording_kernel import SILENCE_SECONDS
from tests.kernel.scripted_pod import in_namespace

RULES = 2_000
"""Told of one by one these overflow a socket's buffer of the usual size."""

COMMITS = 1_000
"""More than the buffer holds while nobody takes them."""


class Watched:
    """A namespace whose commits are watched, and what was told of them."""

    def __init__(self, namespace: Path) -> None:
        self._namespace = namespace
        self.told: list[NftablesCommitted] = []
        self.takes = threading.Event()
        self.takes.set()

    def take(self, commit: NftablesCommitted) -> None:
        self.takes.wait()
        self.told.append(commit)

    def run(self, *command: str, rules: str = "") -> None:
        subprocess.run(
            ["nsenter", f"--net={self._namespace}", *command],
            input=rules,
            text=True,
            check=True,
            env={"PATH": SYSTEM_PATH},
        )

    def settled(self) -> list[NftablesCommitted]:
        """What was told once nothing more can come."""
        time.sleep(SILENCE_SECONDS)
        return self.told


@pytest.fixture
def watched(outside: ClientNamespace) -> Iterator[Watched]:
    if shutil.which("nft", path=SYSTEM_PATH) is None:
        pytest.skip("needs nft: run 'sudo make setup'")
    made = Watched(outside.path)
    commits = NftablesCommits(made.take)
    in_namespace(outside.path, commits.start)
    yield made
    commits.stop()
    made.run("nft", "flush", "ruleset")


def large_table(name: str) -> str:
    rules = "\n".join(f"ip daddr 10.0.{number // 250}.{number % 250} counter" for number in range(RULES))
    return f"table ip {name} {{ chain services {{\n{rules}\n}}\n}}"


def test_each_commit_is_told_once_with_its_process_however_many_rules_it_has(watched: Watched) -> None:
    watched.run("nft", "add", "table", "ip", "small")
    watched.run("nft", "-f", "-", rules=large_table("large"))
    watched.run("nft", "-f", "-", rules=large_table("larger"))
    watched.run("nft", "delete", "table", "ip", "large")
    told = watched.settled()
    assert [commit.process for commit in told] == ["nft"] * 4
    assert [commit.generation - told[0].generation for commit in told] == [0, 1, 2, 3]
    assert sorted(commit.at_ns for commit in told) == [commit.at_ns for commit in told]


def test_a_transaction_that_fails_is_no_commit(watched: Watched) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        watched.run("nft", "delete", "table", "ip", "missing")
    assert watched.settled() == []


def test_commits_of_iptables_over_nftables_have_its_name(watched: Watched) -> None:
    if shutil.which("iptables-nft-restore", path=SYSTEM_PATH) is None:
        pytest.skip("needs iptables-nft-restore, which is not part of the setup")
    rules = "*nat\n:SERVICES - [0:0]\n-A SERVICES -d 10.0.0.1/32 -j RETURN\nCOMMIT\n"
    watched.run("iptables-nft-restore", "--noflush", rules=rules)
    assert {commit.process for commit in watched.settled()} == {"iptables-nft-re"}


def test_commits_of_other_namespaces_are_not_told_of(watched: Watched) -> None:
    subprocess.run(
        ["unshare", "-n", "nft", "add", "table", "ip", "elsewhere"], check=True, env={"PATH": SYSTEM_PATH}
    )
    assert watched.settled() == []


def test_commits_are_told_again_after_some_were_lost(watched: Watched) -> None:
    watched.takes.clear()
    one_by_one = "".join(f"add table ip t{number}\n" for number in range(COMMITS))
    watched.run("nft", "-i", rules=one_by_one)
    watched.takes.set()
    assert 0 < len(watched.settled()) < COMMITS
    watched.run("nft", "add", "table", "ip", "last")
    last = watched.settled()[-1]
    assert last.generation - watched.told[0].generation == COMMITS


WATCHING = """
from agent.kernel.nftables_commits import NftablesCommits
commits = NftablesCommits(print)
commits.start()
commits.stop()
"""


def test_an_agent_that_may_not_listen_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHING],
        user=65534,
        extra_groups=(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines() == [
        "commits of nftables rules are not seen (NET_ADMIN is missing):"
        " kube-proxy is known from its metrics alone"
    ]
