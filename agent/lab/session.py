"""A lab run's plays, one after the other, and what is printed of them."""

import json
import sys
import threading
import time
from collections.abc import Sequence

from agent.lab.agent_process import AgentProcess
from agent.lab.errors import LabError
from agent.lab.paint import Colour, Paint
from agent.lab.play import Played, play
from agent.lab.report import play_text
from agent.lab.report_json import scenario_json
from agent.lab.scenario import Scenario, Variant
from agent.lab.stage import Stage
from agent.lab.verdict import problems


class Session:
    """Plays scenarios on a stage whose agent runs; with `keep` the last one stays up until Ctrl-C."""

    def __init__(self, running: Stage, seed: int, *, as_json: bool, keep: bool) -> None:
        if running.agent is None:
            raise LabError("there is no agent to compare with")
        self._stage = running
        self._agent: AgentProcess = running.agent
        self._seed = seed
        self._as_json = as_json
        self._keep = keep
        self._paint = Paint(sys.stdout)

    def play_all(self, scenarios: Sequence[Scenario]) -> int:
        """Play and print; 0 if nothing was wrong, else 1. Raises LabError, NodeError, TimeoutError."""
        started = time.monotonic()
        self._say(
            Colour.QUIET,
            f"agent run is ready after {self._agent.ready_seconds:.1f} s,"
            f" {self._agent.resident_megabytes():.0f} MB resident\n",
        )
        plays = found = 0
        for scenario in scenarios:
            of_scenario = [
                self._play(
                    scenario, variant, last=(scenario, variant) == (scenarios[-1], scenario.variants[-1])
                )
                for variant in scenario.variants
            ]
            if self._as_json:
                print(json.dumps(scenario_json(of_scenario)), flush=True)
            plays += len(of_scenario)
            found += sum(len(problems_of_play) for _, problems_of_play in of_scenario)
        if self._keep:
            self._let_look()
        self._stop_agent()
        self._say_result(plays, found, time.monotonic() - started)
        return 1 if found else 0

    def _play(self, scenario: Scenario, variant: Variant, *, last: bool) -> tuple[Played, tuple[str, ...]]:
        played = play(self._stage, scenario, variant, self._seed, keep=self._keep and last)
        found = problems(played)
        if not self._as_json:
            print(play_text(played, found, self._paint) + "\n", flush=True)
        return played, found

    def _stop_agent(self) -> None:
        end = self._agent.stop()
        if end.exit_code != 0:
            raise LabError(f"agent run ended with exit code {end.exit_code}: {end.log}")

    def _say_result(self, plays: int, found: int, seconds: float) -> None:
        if found:
            self._say(Colour.BAD, f"{found} problems in {plays} plays, {seconds:.0f} s.")
        else:
            self._say(Colour.GOOD, f"In all {plays} plays the counts equal the clients', {seconds:.0f} s.")

    def _say(self, colour: Colour, text: str) -> None:
        if not self._as_json:
            print(self._paint(colour, text), flush=True)

    def _let_look(self) -> None:
        """Say where everything is, and wait for Ctrl-C."""
        lines = (
            "The lab stays up until Ctrl-C:",
            f"  curl {self._agent.url}/metrics",
            f"  curl {self._stage.api.url}/api/v1/pods",
            f"  curl {self._stage.kube_proxy.metrics_url}",
            f"  export KUBECONFIG={self._stage.kubeconfig}",
            f"  ip netns exec {self._stage.clients.path.name} ip addr",
            f"  tail -f {self._agent.log}",
        )
        print("\n".join(lines), file=sys.stderr, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
