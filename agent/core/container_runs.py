"""Finds the run of a container that a record is about, among those of one pod."""

from agent.core.boundaries import reach
from agent.core.container_run import ContainerRun
from agent.core.life import PodLife

REMEMBERED_NAMES = 64
"""Container IDs kept of one pod: a crash loop has no end."""


def run_of_init(life: PodLife, init_pid: int) -> ContainerRun | None:
    """The latest run with this init process: pids are used again."""
    return next((run for run in reversed(life.runs) if run.init_pid == init_pid), None)


def run_of_container(life: PodLife, name: str | None, at_ns: int | None = None) -> ContainerRun | None:
    """The latest run of the container, or the latest that had begun by `at_ns`, if any had.

    Of a pod's only container it may also be one that nobody has named yet.
    """
    only = len(life.pod.containers) == 1
    runs = [run for run in life.runs if run.name == name or (only and run.name is None and run.serves)]
    begun = [run for run in runs if at_ns is None or run.first_seen_ns <= at_ns]
    return next(reversed(begun or runs), None)


def begin_run(life: PodLife, init_pid: int, at_ns: int) -> ContainerRun:
    """The run that has this init process, a new one unless it is known and has not ended."""
    known = run_of_init(life, init_pid)
    if known is not None and not known.seen_ending:
        return known
    if len(life.pod.containers) == 1 and life.runs and life.runs[-1].init_pid is None:
        life.runs[-1].init_pid = init_pid
        return life.runs[-1]
    run = ContainerRun(init_pid=init_pid, first_seen_ns=at_ns)
    life.runs.append(run)
    return run


def replace_earlier(life: PodLife, run: ContainerRun) -> None:
    """The run is up: earlier ones of its container, as far as they are known to be that, are over."""
    for other in life.runs:
        if other is run:
            break
        same = other.name == run.name or None in (other.name, run.name)
        if same and (other.ended or other.container_id not in (None, run.container_id)):
            other.replaced = True


def identify(life: PodLife, init_pid: int, container_id: str, at_ns: int) -> None:
    """The process is the init of this container; what both sides told of the run becomes one."""
    named = run_with_id(life, container_id)
    seen = run_of_init(life, init_pid)
    if seen is not None and seen.container_id != container_id:
        another = seen.seen_ending or seen.container_id is not None
        seen = None if another else seen
    if named is None and seen is None:
        named = ContainerRun(container_id=container_id, init_pid=init_pid, first_seen_ns=at_ns)
        life.runs.append(named)
    elif named is None and seen is not None:
        seen.container_id = container_id
        named = seen
    elif named is not None and seen is None:
        named.init_pid = init_pid
    elif named is not None and seen is not None and named is not seen:
        _take_over(named, seen)
        life.runs.remove(seen)
    if named is not None:
        named.name = named.name or life.names.get(container_id)


def name_run(life: PodLife, name: str, container_id: str, at_ns: int) -> ContainerRun:
    """The run with this container ID, which belongs to the container of this name; made if it is new."""
    life.names[container_id] = name
    while len(life.names) > REMEMBERED_NAMES:
        del life.names[next(iter(life.names))]
    run = run_with_id(life, container_id) or _unnamed_run_of_only_container(life)
    if run is None:
        run = ContainerRun(container_id=container_id, first_seen_ns=at_ns)
        life.runs.append(run)
    run.container_id = container_id
    run.name = name
    for other in life.runs:
        if other is run:
            break
        other.replaced |= other.name == name
    return run


def _unnamed_run_of_only_container(life: PodLife) -> ContainerRun | None:
    unnamed = [run for run in life.runs if run.serves and run.container_id is None and not run.seen_ending]
    return unnamed[-1] if unnamed and len(life.pod.containers) == 1 else None


def run_with_id(life: PodLife, container_id: str | None) -> ContainerRun | None:
    """The run with this container ID, if there is one; none has None, which nobody has told."""
    known = (run for run in reversed(life.runs) if run.container_id == container_id)
    return next(known, None) if container_id else None


def _take_over(run: ContainerRun, seen: ContainerRun) -> None:
    run.init_pid = seen.init_pid
    run.serves = run.serves or seen.serves
    run.open_ports |= seen.open_ports
    run.ports_closed = seen.ports_closed | run.ports_closed
    run.stop_signal = run.stop_signal or seen.stop_signal
    run.exit = seen.exit or run.exit
    for boundary, moment in seen.boundaries.items():
        reach(run.boundaries, boundary, moment)
