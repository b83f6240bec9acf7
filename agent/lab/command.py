"""The lab command: rolling updates on this machine, before and after the fix."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agent.lab.errors import LabError
from agent.lab.node.errors import NodeError
from agent.lab.node.network import Cni
from agent.lab.scenario import Scenario
from agent.lab.scenarios import COMMONEST, SCENARIOS
from agent.lab.session import Session
from agent.lab.stage import stage

_BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--list", action="store_true", help="list the scenarios and end")
    which.add_argument("--all", action="store_true", help="play every scenario, not only the commonest")
    which.add_argument(
        "--scenario",
        action="append",
        choices=sorted(_BY_NAME),
        metavar="NAME",
        help="play this scenario; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per scenario")
    parser.add_argument(
        "--keep", action="store_true", help="leave the last scenario running to look at, until Ctrl-C"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of names and of the load (default 1)")
    parser.add_argument(
        "--cni",
        choices=[cni.value for cni in Cni],
        default=Cni.BRIDGE.value,
        help="shape of the pod network (default bridge)",
    )


def run(args: argparse.Namespace) -> int:
    """Play; 0 if every failure showed and every count was right, 1 if not, 2 if it could not run."""
    if args.list:
        print(listing())
        return 0
    if os.geteuid() != 0:
        print(
            "agent lab: it makes network namespaces and loads BPF programs: run it as root", file=sys.stderr
        )
        return 2
    try:
        with _ends_on_sigterm(), stage(Cni(args.cni), with_agent=True) as running:
            session = Session(running, args.seed, as_json=args.json, keep=args.keep)
            return session.play_all(_chosen(args))
    except (LabError, NodeError, TimeoutError) as error:
        print(f"agent lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("agent lab: stopped", file=sys.stderr)
        return 130


def listing() -> str:
    """Every scenario with what happens in it and what mends it."""
    lines = []
    for scenario in SCENARIOS:
        mark = "*" if scenario in COMMONEST else " "
        lines.append(f"{mark} {scenario.name}")
        lines.append(f"    {scenario.happens}")
        if scenario.fix is not None:
            lines.append(f"    Fix: {scenario.fix}.")
    return "\n".join([*lines, "", "* played unless others are asked for"])


def _chosen(args: argparse.Namespace) -> tuple[Scenario, ...]:
    if args.all:
        return SCENARIOS
    if args.scenario:
        return tuple(_BY_NAME[name] for name in dict.fromkeys(args.scenario))
    return COMMONEST


@contextmanager
def _ends_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the lab as Ctrl-C does, so that everything is taken down."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
