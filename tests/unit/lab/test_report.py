"""A play's text says both sides' counts, fits 100 columns, and shouts only when something is wrong."""

import io
import json
from collections import Counter
from dataclasses import replace

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.client_counts import ClientCounts
from agent.lab.lastcall_counts import LastcallCounts, StageLag
from agent.lab.late_connections import LateTruth
from agent.lab.node.clients import LoadResult
from agent.lab.node.outcome import FailedConnection, Outcome, Via
from agent.lab.paint import Colour, Paint
from agent.lab.play import Played
from agent.lab.report import WIDTH, play_text
from agent.lab.report_json import scenario_json
from agent.lab.scenario import Variant
from agent.lab.scenarios import SCENARIOS
from agent.lab.streams import StreamResult
from agent.lab.true_lag import TrueLag, true_lag
from agent.lab.verdict import problems

PLAIN = Paint(io.StringIO())


def failed(outcome: Outcome) -> FailedConnection:
    return FailedConnection(
        0, 0, outcome, Via.SERVICE, "GET", "10.9.1.1", 80, None, None, None, None, "", "1"
    )


def a_play(scenario: str = "exits-at-once") -> Played:
    chosen = next(of for of in SCENARIOS if of.name == scenario)
    outcomes = [Outcome.REFUSED] * 3 + [Outcome.TIMED_OUT] * 2 + [Outcome.RESET]
    load = LoadResult(120, 114, 120, 0, {}, [failed(outcome) for outcome in outcomes])
    counted = LastcallCounts(
        dropped={
            ("web-1", Kind.REFUSED, Phase.CLOSED): 1,
            ("web-1", Kind.REFUSED, Phase.EXITED): 2,
            ("web-1", Kind.UNREACHABLE, Phase.GONE): 2,
            ("web-1", Kind.UNREAD, Phase.EXITED): 1,
        },
        late={("web-1", Phase.TERMINATING): 4},
        pod_lag={"web-1": 1.92},
        stages={"endpointslice": StageLag(1, 0.02), "traffic": StageLag(1, 1.92)},
        lost_events=0,
    )
    clients = ClientCounts(120, 114, Counter(outcomes))
    late = {"web-1": LateTruth(3, 4)}
    streams = (StreamResult(chosen.load[0], load),)
    return Played(chosen, Variant.BEFORE, streams, clients, (), counted, late, TrueLag("web-1", 1.9), 7.0)


def test_equal_counts_are_said_to_be_equal() -> None:
    play = a_play()
    text = play_text(play, problems(play), PLAIN)
    assert problems(play) == ()
    assert "Counts equal: 6 connections dropped." in text
    assert "DIFFER" not in text
    for words in ("3 refused (1 closed, 2 exited)", "2 unreachable (2 gone)", "1 unread", "1.92 s", "120"):
        assert words in text


def test_what_nginx_retried_is_told_apart_from_what_its_users_saw() -> None:
    play = a_play()
    error = replace(failed(Outcome.HTTP_ERROR), via=Via.INGRESS, detail="502", request_id="told")
    load = replace(play.streams[0].load, failures=[error])
    upstream = tuple(replace(failed(Outcome.RESET), request_id=name) for name in ("told", "retried", "other"))
    play = replace(play, streams=(replace(play.streams[0], load=load),), upstream_failures=upstream)
    text = " ".join(play_text(play, (), PLAIN).split())
    assert "114 answered, 1 GET 502; nginx lost 3 connections to pods, 2 of them without a trace" in text


def test_it_fits_its_width() -> None:
    play = a_play()
    assert all(len(line) <= WIDTH for line in play_text(play, problems(play), PLAIN).splitlines())


def test_a_wrong_count_is_shouted() -> None:
    play = a_play()
    play = replace(play, clients=ClientCounts(120, 113, Counter({Outcome.REFUSED: 4, Outcome.TIMED_OUT: 3})))
    assert problems(play) == (
        "DIFFER: refused: clients 4, Lastcall 3",
        "DIFFER: timed out: clients 3, Lastcall 2",
        "DIFFER: broken: clients 0, Lastcall 1",
    )
    assert "DIFFER: refused: clients 4, Lastcall 3" in play_text(play, problems(play), PLAIN)


def test_a_wrong_late_count_and_lost_events_are_problems() -> None:
    play = replace(a_play(), late={"web-1": LateTruth(5, 6)})
    assert problems(play) == ("DIFFER: late: pod web-1 accepted 5 to 6, Lastcall 4",)
    assert play.lastcall is not None
    play = replace(a_play(), lastcall=replace(play.lastcall, lost_events=2))
    assert problems(play) == ("Lastcall lost 2 events",)


def test_a_drop_in_an_impossible_phase_and_a_wrong_lag_are_problems() -> None:
    play = a_play()
    play = replace(play, scenario=replace(play.scenario, phases=frozenset({Phase.CLOSED, Phase.EXITED})))
    assert problems(play) == ("DIFFER: phase: 2 unreachable in phase gone, where none can be",)
    play = replace(a_play(), lag=TrueLag("web-1", 1.0))
    assert problems(play) == ("DIFFER: lag: clients 1.000 s, Lastcall 1.92",)


def test_the_last_endpoints_lag_is_none_by_design() -> None:
    play = a_play("single-replica")
    assert play.lastcall is not None
    assert "DIFFER: lag: clients 1.900 s, Lastcall 1.92" in problems(play)
    designed = replace(play, lastcall=replace(play.lastcall, pod_lag={}))
    assert not any("lag" in problem for problem in problems(designed))
    assert "none: traffic to the last endpoint is sent by design" in play_text(designed, (), PLAIN)


def test_a_reset_that_went_with_the_network_is_told_and_is_no_problem() -> None:
    play = a_play()
    outcomes = Counter({Outcome.REFUSED: 2, Outcome.TIMED_OUT: 3, Outcome.RESET: 1})
    play = replace(play, clients=replace(play.clients, by_outcome=outcomes))
    assert problems(play) == ()
    assert "1 refused timed out for the client: the reset went with the pod's network." in play_text(
        play, (), PLAIN
    )
    assert problems(replace(play, late={})) != ()


def test_the_lag_ends_with_the_last_connection_that_was_tried_or_accepted() -> None:
    tried = replace(failed(Outcome.TIMED_OUT), started_ns=5_000_000_000, time_ns=9_000_000_000)
    rejected = replace(failed(Outcome.REJECTED), started_ns=7_000_000_000)
    assert true_lag("web-1", 2_000_000_000, [4_000_000_000], [tried, rejected]) == TrueLag("web-1", 3.0)
    assert true_lag("web-1", 2_000_000_000, [1_000_000_000], []) is None


def test_a_fix_that_does_not_fix_is_a_problem() -> None:
    assert "nothing is wrong any more" in problems(replace(a_play(), variant=Variant.AFTER))[0]


def test_a_failure_that_did_not_show_is_a_problem() -> None:
    assert problems(a_play("keepalive-reuse"))[-1] == "the failure did not show: nothing stale"


def test_json_carries_both_sides() -> None:
    play = a_play()
    written = json.loads(json.dumps(scenario_json([(play, problems(play))])))
    assert written["equal"] is True
    of_play = written["plays"][0]
    assert of_play["clients"]["by_class"] == {"refused": 3, "timed out": 2, "broken": 1}
    assert of_play["lastcall"]["by_class"] == of_play["clients"]["by_class"]
    assert of_play["lastcall"]["longest_lag_seconds"] == 1.92


def test_there_is_colour_only_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert PLAIN(Colour.BAD, "x") == "x"
    assert Paint(Terminal())(Colour.BAD, "x") == "\x1b[1;31mx\x1b[0m"
