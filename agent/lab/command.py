"""The lab command: rolling updates on this machine, before and after the fix."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from agent.lab.errors import LabError
from agent.lab.node.errors import NodeError
from agent.lab.node.network import Cni
from agent.lab.paint import Colour, Paint
from agent.lab.play import Played, play
from agent.lab.report import WIDTH, play_text
from agent.lab.report_json import scenario_json
from agent.lab.scenario import Scenario
from agent.lab.scenarios import COMMONEST, SCENARIOS
from agent.lab.stage import Stage, stage
from agent.lab.verdict import problems

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
        print(_listing())
        return 0
    if os.geteuid() != 0:
        print(
            "agent lab: it makes network namespaces and loads BPF programs: run it as root", file=sys.stderr
        )
        return 2
    chosen = _chosen(args)
    try:
        with _ends_on_sigterm(), stage(Cni(args.cni), with_agent=True) as running:
            return _run_on(running, chosen, args)
    except (LabError, NodeError, TimeoutError) as error:
        print(f"agent lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("agent lab: stopped", file=sys.stderr)
        return 130


def _chosen(args: argparse.Namespace) -> tuple[Scenario, ...]:
    if args.all:
        return SCENARIOS
    if args.scenario:
        return tuple(_BY_NAME[name] for name in dict.fromkeys(args.scenario))
    return COMMONEST


def _run_on(running: Stage, chosen: Iterable[Scenario], args: argparse.Namespace) -> int:
    assert running.agent is not None
    paint = Paint(sys.stdout)
    started = time.monotonic()
    scenarios = list(chosen)
    if not args.json:
        print(
            paint(
                Colour.QUIET,
                f"agent run is ready after {running.agent.ready_seconds:.1f} s,"
                f" {running.agent.resident_megabytes():.0f} MB resident; pod network: {args.cni}\n",
            ),
            flush=True,
        )
    all_problems = 0
    plays = 0
    for scenario in scenarios:
        of_scenario: list[tuple[Played, tuple[str, ...]]] = []
        for variant in scenario.variants:
            last = scenario is scenarios[-1] and variant is scenario.variants[-1]
            played = play(running, scenario, variant, args.seed, keep=args.keep and last)
            found = problems(played)
            of_scenario.append((played, found))
            if not args.json:
                print(play_text(played, found, paint) + "\n", flush=True)
        plays += len(of_scenario)
        all_problems += sum(len(found) for _, found in of_scenario)
        if args.json:
            print(json.dumps(scenario_json(of_scenario)), flush=True)
    if args.keep:
        _let_look(running)
    end = running.agent.stop()
    if end.exit_code != 0:
        raise LabError(f"agent run ended with exit code {end.exit_code}: {end.log}")
    if not args.json:
        print(_summary(plays, all_problems, time.monotonic() - started, paint))
    return 1 if all_problems else 0


def _summary(plays: int, found: int, seconds: float, paint: Paint) -> str:
    if found:
        return paint(Colour.BAD, f"{found} problems in {plays} plays, {seconds:.0f} s.")
    return paint(Colour.GOOD, f"All counts of {plays} plays equal the clients', {seconds:.0f} s.")


def _listing() -> str:
    lines = []
    for scenario in SCENARIOS:
        mark = "*" if scenario in COMMONEST else " "
        lines.append(f"{mark} {scenario.name:<24}{scenario.happens}"[: WIDTH * 2])
        if scenario.fix is not None:
            lines.append(f"  {'':<24}fix: {scenario.fix}")
    return "\n".join([*lines, "* played unless others are asked for"])


def _let_look(running: Stage) -> None:
    """Say where everything is, and wait for Ctrl-C."""
    assert running.agent is not None
    print(
        "\n".join(
            [
                "The lab goes on until Ctrl-C:",
                f"  curl {running.agent.url}/metrics",
                f"  curl {running.api.url}/api/v1/pods",
                f"  curl {running.kube_proxy.metrics_url}",
                f"  KUBECONFIG={running.kubeconfig}",
                f"  ip netns exec {running.clients.path.name} ip addr",
                f"  tail -f {running.agent.log}",
            ]
        ),
        flush=True,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


@contextmanager
def _ends_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the lab as Ctrl-C does, so that everything is taken down."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
