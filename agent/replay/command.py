"""The command `agent replay`."""

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from agent.core.observation import Observation
from agent.core.record_codec import RecordedEntry
from agent.core.recording import PassedOver, RecordingHeader, parse_entries, parse_header
from agent.outputs.prometheus import AgentCollector
from agent.outputs.termination_json import termination_json
from agent.outputs.termination_text import termination_text
from agent.replay.player import Player
from agent.replay.watch_folder import read_watch_folder

NODE_SEPARATOR = ", "
LEFT_OUT_SHOWN = 3
FOREVER_SECONDS = 10.0**9
"""Pods of a folder of watches are never forgotten: the folder is the whole story."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `agent replay`."""
    parser.add_argument(
        "recording",
        metavar="FILE|FOLDER",
        help="what agent run --record wrote, or a folder of watch-pods.jsonl, watch-endpointslices.jsonl, "
        "watch-events.jsonl",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "metrics"),
        default="text",
        help="terminations as text or JSON, or the metrics as they were at the end (default: text)",
    )


def run(args: argparse.Namespace) -> int:
    """Replay. Returns 0, or 1 when there was nothing to replay."""
    logging.basicConfig(level=logging.WARNING, format="agent replay: %(message)s", stream=sys.stderr)
    path = Path(args.recording)
    try:
        header, player = _play_folder(path) if path.is_dir() else _play_file(path)
    except (OSError, ValueError) as error:
        reason = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"agent replay: {reason}", file=sys.stderr)
        return 1
    _tell_left_out(tuple(player.left_out.values()))
    for piece in _output(args.output, header, player):
        sys.stdout.write(piece)
    return 0


def _play_folder(path: Path) -> tuple[RecordingHeader, Player]:
    folder = read_watch_folder(path)
    for complaint in folder.complaints:
        _warn(complaint)
    header = RecordingHeader(NODE_SEPARATOR.join(folder.nodes), "unknown", FOREVER_SECONDS)
    return header, _played(path, header, folder.records())


def _play_file(path: Path) -> tuple[RecordingHeader, Player]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        try:
            header = parse_header(next(lines, ""))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        passed_over = PassedOver()
        player = _played(path, header, parse_entries(lines, passed_over))
    _tell(path, passed_over)
    return header, player


def _played(path: Path, header: RecordingHeader, entries: Iterator[RecordedEntry]) -> Player:
    player = Player(Observation(int(header.retention_seconds * 1e9), frozenset(header.node_addresses)))
    player.play(entries)
    if player.failures:
        _warn(
            f"{path}: passed over {player.failures} records, as the agent did; please report the first: "
            f"{player.first_failure}"
        )
    return player


def _tell(path: Path, passed_over: PassedOver) -> None:
    if passed_over.unknown:
        _warn(f"{path}: passed over {passed_over.unknown} records of a newer version")
    if passed_over.damaged:
        _warn(
            f"{path}: passed over {passed_over.damaged} damaged lines, the first: {passed_over.first_damage}"
        )
    if passed_over.torn:
        _warn(f"{path} ends in the middle of a line: the agent was killed while it wrote")


def _tell_left_out(pods: tuple[str, ...]) -> None:
    if not pods:
        return
    shown = ", ".join(pods[:LEFT_OUT_SHOWN])
    rest = f" and {len(pods) - LEFT_OUT_SHOWN} more" if len(pods) > LEFT_OUT_SHOWN else ""
    _warn(f"left out, being on the node's own network (hostNetwork): {shown}{rest}")


def _warn(text: str) -> None:
    print(f"agent replay: {text}", file=sys.stderr)


def _output(form: str, header: RecordingHeader, player: Player) -> Iterator[str]:
    if form == "metrics":
        yield _metrics(header, player)
        return
    ends = player.terminations()
    if form == "json":
        yield json.dumps([termination_json(end) for end in ends], indent=2) + "\n"
        return
    for end in ends:
        yield termination_text(end) + "\n\n"
    what = "1 termination" if len(ends) == 1 else f"{len(ends)} terminations"
    nodes = "nodes" if NODE_SEPARATOR in header.node else "node"
    yield f"{what} in {player.entries} records of {nodes} {header.node or 'unknown'}\n"


def _metrics(header: RecordingHeader, player: Player) -> str:
    snapshot = player.observation.snapshot(player.counts, player.own)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentCollector(lambda: snapshot, header.version))
    return generate_latest(registry).decode()
