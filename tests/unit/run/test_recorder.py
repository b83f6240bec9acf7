"""Recordings: bounded, private, and each file whole enough to be replayed alone."""

import resource
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.counts import Count, CountKey, HookCounts, KernelCounts
from agent.core.kinds import Kind
from agent.core.observation import Observation, OwnState
from agent.core.phases import Fact
from agent.core.recording import (
    PassedOver,
    RecordingHeader,
    entry_line,
    header_line,
    parse_entries,
    parse_header,
)
from agent.core.records import (
    ContainerExited,
    EndpointTerminating,
    KubeProxyState,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    PodChanged,
    PodRemoved,
    PodsListed,
    Record,
    SignalResult,
    StopSignalSent,
)
from agent.core.snapshot import WatchState
from agent.core.termination import Termination
from agent.replay.player import Player
from agent.run.recorder import Recorder
from tests.unit.core.lives import NETNS, SECOND, a_pod

HEADER = RecordingHeader("node", "1", 600.0)
DROPS = CountKey(NETNS, 8080, Kind.REFUSED, Fact.LISTENED | Fact.DELETED | Fact.CLOSED)


def replayed(file: Path) -> Player:
    with file.open() as lines:
        header, passed_over = parse_header(next(lines)), PassedOver()
        player = Player(Observation(int(header.retention_seconds * SECOND)))
        player.play(parse_entries(lines, passed_over))
    assert (passed_over.unknown, passed_over.damaged, passed_over.torn) == (0, 0, False)
    return player


def a_life(number: int, start: int) -> Iterator[Record]:
    uid, netns = f"uid-{number}", NETNS + number
    yield PodChanged(start, a_pod(uid))
    yield NamespaceIdentified(start + 1, netns, uid)
    yield ListenerOpened(start + 2, netns, 8080, 1000 + number)
    yield PodChanged(start + 3, a_pod(uid, deleted_ns=start + 3))
    yield EndpointTerminating(start + 4, uid, "web", removed=False, ready_left=1)
    yield StopSignalSent(start + 5, netns, 1000 + number, 15, SignalResult.DELIVERED, "runc")
    yield ContainerExited(start + 6, netns, 1000 + number, 0)
    yield NetworkRemoved(start + 7, netns)
    yield PodRemoved(start + 8, uid)


def recorded(file: Path, lives: int, limit: int) -> tuple[Termination, ...]:
    """Record that many lives one after the other, a second each; the terminations of the live observation."""
    recorder = Recorder(file, limit, HEADER)
    observation = Observation(int(HEADER.retention_seconds * SECOND))
    counts = KernelCounts()
    for number in range(lives):
        start = number * SECOND
        for record in (PodsListed(start), *a_life(number, start)):
            observation.apply(record)
            recorder.took(record)
        key = replace(DROPS, netns=NETNS + number)
        counts = KernelCounts({**counts.counts, key: Count(number + 1, start + 6, start + 6)})
        own = OwnState(watches=(WatchState("pods", number, start),))
        recorder.read(start + 9, counts, own, observation.tracker)
        observation.settle(start + 9, counts)
    recorder.close(lives * SECOND)
    return observation.terminations(counts)


def test_a_recording_replays_to_the_same_terminations(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    live = recorded(file, 20, 10_000_000)
    player = replayed(file)
    assert player.observation.terminations(player.counts) == live
    assert player.own.watches == (WatchState("pods", 19, 19 * SECOND),)
    assert not (tmp_path / "recording.1").exists()


def test_both_files_of_a_recording_replay_alone_and_end_as_the_live_agent_did(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    live = recorded(file, 400, 60_000)
    player = replayed(file)
    assert player.observation.terminations(player.counts) == live
    before = replayed(tmp_path / "recording.1")
    assert before.observation.terminations(before.counts)[0] == live[0]


def test_old_pods_leave_the_recording_with_the_metrics(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    recorder = Recorder(file, 4000, HEADER)
    observation = Observation(SECOND)
    for number in range(200):
        for record in a_life(number, number * SECOND):
            observation.apply(record)
            recorder.took(record)
        recorder.read(number * SECOND + 9, KernelCounts(), OwnState(), observation.tracker)
        observation.settle(number * SECOND + 9, KernelCounts())
    recorder.close(200 * SECOND)
    assert file.stat().st_size < 12_000
    assert (tmp_path / "recording.1").stat().st_size < 12_000


def test_pods_that_become_ready_and_unready_for_days_stay_within_the_limit(tmp_path: Path) -> None:
    file, limit = tmp_path / "recording", 400_000
    recorder, tracker = Recorder(file, limit, HEADER), Observation(SECOND).tracker
    for flip in range(60):
        for number in range(100):
            record = PodChanged(flip * SECOND, replace(a_pod(f"uid-{number}"), ready=flip % 2 == 0))
            tracker.apply(record)
            recorder.took(record)
        recorder.read(flip * SECOND, KernelCounts(), OwnState(), tracker)
    recorder.close(60 * SECOND)
    sizes = [each.stat().st_size for each in (file, tmp_path / "recording.1")]
    of_one_reading = 100 * len(entry_line(record))
    assert max(sizes) <= limit / 2 + of_one_reading + 1000
    assert replayed(file).observation.tracker.lives.keys() == tracker.lives.keys()


def test_known_pods_that_take_more_than_the_limit_do_not_make_a_new_file_at_each_reading(
    tmp_path: Path,
) -> None:
    file = tmp_path / "recording"
    recorder, tracker = Recorder(file, 40_000, HEADER), Observation(SECOND).tracker
    begun = 0
    for number in range(300):
        record = PodChanged(number, a_pod(f"uid-{number}"))
        tracker.apply(record)
        recorder.took(record)
        inode = file.stat().st_ino
        recorder.read(number, KernelCounts(), OwnState(), tracker)
        begun += file.stat().st_ino != inode
    recorder.close(300)
    assert file.stat().st_size > 40_000
    assert begun <= 300 * len(entry_line(record)) / 10_000


def test_only_what_has_changed_of_the_counters_is_written(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    recorder, tracker = Recorder(file, 10_000_000, HEADER), Observation(SECOND).tracker
    counts = KernelCounts({DROPS: Count(3, 1, 2)}, {}, {"exit": HookCounts(1, 0)})
    recorder.read(1, counts, OwnState(), tracker)
    size = file.stat().st_size
    for at_ns in range(2, 50):
        recorder.read(at_ns, counts, OwnState(), tracker)
    assert file.stat().st_size == size
    recorder.close(50)


def test_a_recording_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    Recorder(file, 1_000_000, HEADER).close(1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_for_its_owner_only_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    file.touch(0o644)
    file.chmod(0o644)
    Recorder(file, 1_000_000, HEADER).close(1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_agent_that_starts_again_keeps_the_recording_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "recording"
    live = recorded(file, 3, 10_000_000)
    file.with_name("header").write_text(header_line(HEADER))
    Recorder(file, 1_000_000, HEADER).close(1)
    file.with_name("header").replace(file)  # of an agent that ended before it took anything in
    Recorder(file, 1_000_000, HEADER).close(1)
    before = replayed(tmp_path / "recording.1")
    assert before.observation.terminations(before.counts) == live
    assert replayed(file).entries == 1


@pytest.mark.parametrize("name", ["recording", "recording.1"])
def test_a_file_that_is_no_recording_is_never_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("root:x:0:0:root:/root:/bin/bash\n")
    with pytest.raises(ValueError, match=rf"^\S*/{name} is there and is no recording: [^\n]*--record$"):
        Recorder(tmp_path / "recording", 1_000_000, HEADER)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text().startswith("root:")


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "nowhere" / "recording", 1_000_000, HEADER)


def test_a_full_disk_ends_the_recording_with_one_line_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder, tracker = Recorder(Path("/dev/full"), 10_000_000, HEADER), Observation(SECOND).tracker
    for at_ns in range(1, 2000):
        recorder.took(KubeProxyState(at_ns, True, at_ns, at_ns, 0))
        recorder.read(at_ns, KernelCounts(), OwnState(), tracker)
    recorder.close(2000)
    assert [record.getMessage() for record in caplog.records] == [
        "the recording in /dev/full has ended: No space left on device; the agent goes on"
    ]


def test_a_disk_that_is_full_when_the_second_file_begins_ends_the_recording_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "recording"
    recorder, observation = Recorder(file, 40_000, HEADER), Observation(SECOND)
    whole = len(header_line(HEADER))
    for number in range(60):
        record = PodChanged(number, a_pod(f"uid-{number}"))
        whole += len(entry_line(record))
        recorder.took(record)
        observation.apply(record)
    within, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, resource.RLIM_INFINITY))
        recorder.read(100, KernelCounts(), OwnState(), observation.tracker)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (within, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    recorder.took(PodsListed(101))
    recorder.close(102)
    assert (tmp_path / "recording.1").exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"the recording in {file} has ended: File too large; the agent goes on"
    ]
