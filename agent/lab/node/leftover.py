import json
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.lab.node import host_command
from agent.lab.node.errors import NodeError


class LeftoverKind(StrEnum):
    NETNS = "netns"
    LINK = "link"
    ROUTE = "route"
    NFT_TABLE = "nft_table"
    IPTABLES_RULE = "iptables_rule"
    CGROUP = "cgroup"
    DIRECTORY = "directory"


@dataclass(frozen=True)
class Leftover:
    """Something a run put on the host, noted before it is made so that a later run can remove it.

    `name` is what the kind's tool wants: a name in /run/netns, an interface, `blackhole 10.200.0.0/24`,
    `ip lastcall-lab-0-web`, `iptables FORWARD -i lc0br -j ACCEPT`, or an absolute path.
    """

    kind: LeftoverKind
    name: str

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "name": self.name})


def leftover_from_json(line: str) -> Leftover:
    fields = json.loads(line)
    return Leftover(LeftoverKind(fields["kind"]), fields["name"])


def remove(leftover: Leftover) -> None:
    """Remove it if it is there. What is already gone is no error."""
    match leftover.kind:
        case LeftoverKind.NETNS:
            if Path("/run/netns", leftover.name).exists():
                _attempt(["ip", "netns", "del", leftover.name])
        case LeftoverKind.LINK:
            if Path("/proc/sys/net/ipv4/conf", leftover.name).is_dir():
                _attempt(["ip", "link", "del", leftover.name])
        case LeftoverKind.ROUTE:
            _attempt(["ip", "-6" if ":" in leftover.name else "-4", "route", "del", *leftover.name.split()])
        case LeftoverKind.NFT_TABLE:
            _attempt(["nft", "delete", "table", *leftover.name.split()])
        case LeftoverKind.IPTABLES_RULE:
            tool, *rule = leftover.name.split()
            _attempt([tool, "-D", *rule])
        case LeftoverKind.CGROUP:
            _remove_cgroup(Path(leftover.name))
        case LeftoverKind.DIRECTORY:
            shutil.rmtree(leftover.name, ignore_errors=True)


def _attempt(argv: list[str]) -> None:
    with suppress(NodeError):
        host_command.run(argv)


def _remove_cgroup(path: Path) -> None:
    with suppress(FileNotFoundError):
        for pid in (path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    with suppress(OSError):
        path.rmdir()
