"""Endless jobs side by side for ten minutes, disturbed all the time: windows exact, memory flat, nothing left behind.

Each job runs EXACTLY_ONCE, with a snapshot every 100 ms. Most of them read a built stream of numbered events by
schedule: out of order within the lag, some of them late, keys of which some come and go; then they make tumbling or
sliding windows, sessions, states with `ttl` or joins of two streams, of items or of columns (`...-columns`), and end
after some seconds. What is in their
files then, and in those of their late items, is what the interpreter of `tests/time` says of the same events. One
job counts the numbers of an `item_stream` in windows from the first second to the last: no number is missing.

Meanwhile workers and carriers are killed (-9), and jobs are restarted (gracefully and not), suspended and resumed, and
cancelled with an export from which another job goes on. The member and what workers have in use may grow by less than
0.5 MB a minute once they are warm; runs of less than five minutes are too short for a slope, there the member may grow
by 60 MB in all.

Usage: stress/streams.py [--count SECONDS] [--seed S] [--ci] [--only KIND] [--verbose]        (--ci: 40 seconds)
"""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _growth import Growth, in_use
from _stress import (
    HANG_S,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    names,
    parse_options,
    private_shm,
    watch,
)

import shmjet
from shmjet import (
    DAG,
    JetConfig,
    JetInstance,
    JobConfig,
    JobStateError,
    JobStatus,
    Pipeline,
    ProcessingGuarantee,
    Processor,
    ProcessorContext,
    WorkerLostError,
    aggregate_ops,
    between,
    processors,
    session,
    sinks,
    sliding,
    sources,
    tumbling,
)
from shmjet.core import Outbox
from tests.time import interpreter
from tests.time.interpreter import Event

RATE = 200
"""Events a second of a built stream."""
STEP_MS = 10
"""Between two of its events, in event time."""
LAG_MS = 200
FAR_MS = 6_000
"""By how much those are late that are."""
SIZE_MS, SLIDE_MS, GAP_MS, TTL_MS, WITHIN_MS = 1_000, 200, 150, 300, 40
SIDE_BY_SIDE = 3
PAUSE_S = 1.5
"""Seconds between two disturbances, on average."""
JOB_S = 240.0
"""Seconds that a job may take after its last event is due."""
LONG_S = 300.0
ASK_S = 5.0
"""Seconds between two looks at what workers have in use."""
WARM_S = 60.0
"""Seconds until a worker is warm: it has seen jobs of all kinds then."""
SLOPE = 0.5
"""Megabytes a minute."""
MOST_MB = 60.0
"""What the member may grow by in a run shorter than `LONG_S`."""
COUNTED = "numbers"


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Events:
    """The events of a stream: all of them follow from the seed and their number.

    Args:
        seed: of the random numbers.
        count: how many there are.
        begin: when number 0 is due, by `time.time()`.
        late: whether some come too late.
    """

    seed: int
    count: int
    begin: float
    late: bool

    def item(self, number: int) -> tuple[int, int, int]:
        """Return the timestamp, the key and the number of an event."""
        dice = random.Random(self.seed * 1_000_003 + number)
        key = dice.choice([dice.randrange(7), 1_000 + number // 50])
        is_late = self.late and number > FAR_MS // STEP_MS and dice.random() < 0.01
        return number * STEP_MS - dice.randrange(LAG_MS) - FAR_MS * is_late, key, number

    def fill(self, position: list[int], buffer: Any) -> None:
        """Add what is due."""
        due = min(self.count, int((time.time() - self.begin) * RATE), position[0] + 50)
        buffer.add_all([self.item(number) for number in range(position[0], due)])
        position[0] = max(position[0], due)
        if position[0] == self.count:
            buffer.close()

    def source(self, name: str) -> Any:
        """Return the stream as a source with a position."""
        built = sources.builder(name, lambda context: [0]).fill_buffer_fn(self.fill)
        built = built.create_snapshot_fn(lambda position: position[0])
        return built.restore_snapshot_fn(lambda position, states: position.__setitem__(0, max(states))).stream()

    def played(self, stride: int) -> list[Event]:
        """Return the events with the watermarks in front of them."""
        source = interpreter.Source(LAG_MS, stride)
        return source.play([self.item(number) for number in range(self.count)], stamp)


def stamp(item: Any) -> int:
    """When the event was."""
    return int(item[0])


def key_of(item: Any) -> int:
    """The key of the event."""
    return int(item[1])


def number_of(item: Any) -> int:
    """The number of the event."""
    return int(item[2])


# -- kinds of jobs ---------------------------------------------------------------------------------------------------


NUMBERS: Any = aggregate_ops.mapping(number_of, aggregate_ops.to_list())


def window_row(found: Any) -> Any:
    """A result of a window as a row of plain values."""
    return found.start, found.end, found.key, sorted(found.result)


def in_windows(window: Any, stage: Any, late: Any) -> Any:
    """Make windows by key."""
    made = stage.window(window).late_to(late).grouping_key(key_of).aggregate(NUMBERS).set_name("windows")
    return made.map(window_row)


def in_columns(stage: Any) -> Any:
    """Make batches of a stream of events."""
    return stage.map(fields_of).to_batches()


def fields_of(item: Any) -> dict[str, int]:
    """An event as a row."""
    return {"ts": stamp(item), "k": key_of(item), "n": number_of(item)}


def late_row(row: dict[str, int]) -> str:
    """A late row as the event that it was."""
    return repr((row["ts"], row["k"], row["n"]))


def in_windows_of_columns(window: Any, stage: Any, late: Any) -> Any:
    """Make windows of batches by key."""
    from shmjet.columns import list_

    made = in_columns(stage).window(window).late_to(late).group_by("k").agg(all=list_("n")).set_name("windows")
    return made.to_rows().map(row_of_columns)


def row_of_columns(row: dict[str, Any]) -> Any:
    """A row of a result as what `window_row` gives."""
    import numpy as np

    start, end = (int(np.datetime64(row[name], "ms").astype(int)) for name in ("window_start", "window_end"))
    return start, end, int(row["k"]), sorted(int(n) for n in row["all"])


def counted_in_columns(stage: Any, late: Any) -> Any:
    """Count in sliding windows of batches, in two stages."""
    from shmjet.columns import count, sum_

    window = sliding(SIZE_MS / 1000, SLIDE_MS / 1000)
    made = in_columns(stage).window(window).late_to(late).group_by("k").agg(n=count(), total=sum_("n"))
    return made.set_name("windows").to_rows().map(count_of_columns)


def count_of_columns(row: dict[str, Any]) -> Any:
    """A count as a row."""
    start, end, key, _ = row_of_columns({**row, "all": ()})
    return start, end, key, int(row["n"]), int(row["total"])


def counts_of(events: Events) -> tuple[list[Any], list[Any]]:
    """Say what counts in sliding windows are."""
    rows, late = windows_of(SIZE_MS, SLIDE_MS, SLIDE_MS, events)
    return [(start, end, key, len(numbers), sum(numbers)) for start, end, key, numbers in rows], late


def collected(state: list[int], key: int, item: Any) -> None:
    """Keep the number of an event."""
    state.append(number_of(item))


def evicted(state: list[int], key: int, watermark: int) -> Any:
    """Give what was kept."""
    return key, sorted(state)


def in_states(stage: Any, late: Any) -> Any:
    """Keep the numbers of a key until none has come for a while."""
    return stage.grouping_key(key_of).map_stateful(list, collected, ttl=TTL_MS / 1000, on_evict=evicted)


def pair(left: Any, right: Any) -> Any:
    """A pair of numbers."""
    return left and number_of(left), right and number_of(right)


def rows_of(found: interpreter.Found) -> tuple[list[Any], list[Any]]:
    """What the files of results and of late items have, for windows."""
    rows = [(start, end, key, sorted(map(number_of, items))) for (start, end, key), items in found.results.items()]
    return rows, found.late


def windows_of(size: int, slide: int, stride: int, events: Events) -> tuple[list[Any], list[Any]]:
    """Say what sliding windows give."""
    return rows_of(interpreter.sliding(events.played(stride), size, slide, key_of))


def sessions_of(events: Events) -> tuple[list[Any], list[Any]]:
    """Say what sessions give."""
    return rows_of(interpreter.sessions(events.played(1_000), GAP_MS, key_of))


def states_of(events: Events) -> tuple[list[Any], list[Any]]:
    """Say what states with `ttl` give; their late items are dropped."""
    lives = interpreter.states(events.played(1), TTL_MS, key_of).results
    return [(key, sorted(map(number_of, items))) for key, items in lives], []


def pair_of_columns(row: dict[str, Any]) -> Any:
    """A pair of numbers."""
    return int(row["n"]), int(row["other"])


def pairs_of(events: Events, others: Events, how: str) -> tuple[list[Any], list[Any]]:
    """Say what the join of two streams gives, key by key."""
    sides: list[dict[int, list[Event]]] = [defaultdict(list), defaultdict(list)]
    for side, stream in zip(sides, (events, others), strict=True):
        for number in range(stream.count):
            item = stream.item(number)
            side[key_of(item)].append(Event(stamp(item), item))
    rows = []
    for key in sides[0].keys() | sides[1].keys():
        found = interpreter.joined(sides[0][key], sides[1][key], WITHIN_MS, key_of, how=how)
        rows += [pair(left, right) for _, left, right in found.results]
    return rows, []


WINDOWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "tumbling": (
        partial(in_windows, tumbling(SIZE_MS / 1000)),
        partial(windows_of, SIZE_MS, SIZE_MS, 1_000),
    ),
    "sliding": (
        partial(in_windows, sliding(SIZE_MS / 1000, SLIDE_MS / 1000)),
        partial(windows_of, SIZE_MS, SLIDE_MS, SLIDE_MS),
    ),
    "sessions": (partial(in_windows, session(GAP_MS / 1000)), sessions_of),
    "states": (in_states, states_of),
    "sliding-columns": (
        partial(in_windows_of_columns, sliding(SIZE_MS / 1000, SLIDE_MS / 1000)),
        partial(windows_of, SIZE_MS, SLIDE_MS, SLIDE_MS),
    ),
    "counts-columns": (counted_in_columns, counts_of),
    "sessions-columns": (partial(in_windows_of_columns, session(GAP_MS / 1000)), sessions_of),
}
JOINS = ("join", "join-columns")
KINDS = (*WINDOWS, *JOINS)


# -- jobs ------------------------------------------------------------------------------------------------------------


class Streaming:
    """A job over built streams, and what its files must have in the end."""

    def __init__(self, jet: JetInstance, kind: str, seed: int, folder: Path) -> None:
        self.jet, self.kind, self.folder = jet, kind, folder
        self.name = f"{kind}-{seed}"
        self.rng = random.Random(seed)
        count = self.rng.randint(5 * RATE, 12 * RATE)
        begin = time.time() + 0.2
        late = kind not in JOINS
        self.streams = [Events(seed + side, count, begin, late) for side in range(1 if late else 2)]
        self.ends = begin + count / RATE
        self.moves = 0
        self.start(None)

    def start(self, initial: str | None) -> None:
        """Execute the job, from an exported snapshot if one is named."""
        config = JobConfig(
            name=f"{self.name}-{self.moves}",
            processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE,
            snapshot_interval=0.1,
            initial_snapshot_name=initial,
        )
        self.job = self.jet.new_job(self.pipeline(), config)
        self.execution = self.job.execute()

    def pipeline(self) -> Pipeline:
        """Describe the job; each time with another number of processors."""
        made = Pipeline()
        lag = LAG_MS / 1000
        stages = [
            made.read_from(stream.source(f"events {side}")).with_timestamps(stamp, lag)
            for side, stream in enumerate(self.streams)
        ]
        out = sinks.files(str(self.folder / "out"), repr)
        late = sinks.files(str(self.folder / "late"), late_row if self.kind.endswith("columns") else repr)
        if self.kind == "join-columns":
            left, right = (in_columns(stage) for stage in stages)
            found = left.join(right.select("k", "ts", other="n"), on="k", within=WITHIN_MS / 1000, suffix="_right")
            rows = found.to_rows().map(pair_of_columns)
        elif self.kind == "join":
            rows = stages[0].join(stages[1], key_of, key_of, pair, within=WITHIN_MS / 1000, how="outer")
        else:
            rows = WINDOWS[self.kind][0](stages[0], late)
        rows.set_name("rows").set_local_parallelism(self.rng.choice([1, 2, 3])).write_to(out)
        return made

    def complaint(self) -> str:
        """Compare the files with the interpreter; empty when they are the same."""
        if self.kind in JOINS:
            wanted = pairs_of(*self.streams, how="outer" if self.kind == "join" else "inner")
        else:
            wanted = WINDOWS[self.kind][1](*self.streams)
        return "; ".join(
            f"{part}: {wrong}"
            for part, rows in zip(("out", "late"), wanted, strict=True)
            if (wrong := difference(rows, rows_in(self.folder / part)))
        )


def difference(wanted: Iterable[Any], found: Iterable[Any]) -> str:
    """Say what is missing and what is too much."""
    ought, there = Counter(map(repr, wanted)), Counter(map(repr, found))
    lost, extra = ought - there, there - ought
    if not lost and not extra:
        return ""
    return f"lost {lost.total()} of {ought.total()}: {sorted(lost)[:4]}, extra {extra.total()}: {sorted(extra)[:4]}"


def rows_in(folder: Path) -> list[Any]:
    """Return the committed rows of a folder."""
    paths = sorted(folder.glob("[!.]*")) if folder.exists() else []
    return [ast.literal_eval(line) for path in paths for line in path.read_text().splitlines()]


def counted(found: Any) -> Any:
    """A window over numbers as a row."""
    return found.start, found.end, *found.result


def numbers_pipeline(folder: Path) -> Pipeline:
    """Count the numbers of an `item_stream` in windows, and keep the least and the largest of each."""
    made = Pipeline()
    stage = made.read_from(sources.item_stream(1_000, lambda number, _: number)).with_native_timestamps()
    op = aggregate_ops.all_of(
        aggregate_ops.counting(), aggregate_ops.min_by(lambda n: n), aggregate_ops.max_by(lambda n: n)
    )
    stage.window(tumbling(0.5)).aggregate(op).set_name("windows").map(counted).write_to(
        sinks.files(str(folder / COUNTED), repr)
    )
    return made


def gaps_in(folder: Path) -> str:
    """Say which window of the numbers misses one."""
    rows = sorted(rows_in(folder / COUNTED))
    if not rows:
        return "there is no window"
    if rows[0][3] != 0:
        return f"the first window begins with number {rows[0][3]}"
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        if row[2] != row[4] - row[3] + 1:
            return f"a window of {row[2]} numbers from {row[3]} to {row[4]}"
        if after is not None and (after[0] != row[1] or after[3] != row[4] + 1):
            return f"behind {row} comes {after}"
    return ""


class InUse(Processor):
    """Tells what its worker has in use."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        self.outbox = outbox

    def complete(self) -> bool:
        gc.collect()
        return self.outbox.offer((os.getpid(), in_use()))


# -- the soak --------------------------------------------------------------------------------------------------------


class Soak:
    """Jobs side by side on one member."""

    def __init__(self, options: Options, tally: Tally, mark: str, folder: Path) -> None:
        self.options, self.tally, self.mark, self.folder = options, tally, mark, folder
        self.rng = random.Random(options.seed)
        self.jet = shmjet.new_instance(JetConfig(cores=2))
        self.jobs: list[Streaming] = []
        self.done: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.growth = Growth()
        self.next_seed = options.seed
        self.spares_one = False
        """Whether only the first worker is killed, so that another one grows old: in the second half of the run."""

    def run(self, seconds: float) -> None:
        """Keep jobs running and disturbed for so long."""
        start = time.monotonic()
        config = JobConfig(name=COUNTED, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.1)
        numbers = self.jet.new_job(numbers_pipeline(self.folder), config)
        running = numbers.execute()
        next_trouble, next_sample, next_question = start + PAUSE_S, start, start
        while (now := time.monotonic() - start) < seconds or self.jobs:
            watch(6 * JOB_S)
            while now < seconds and len(self.jobs) < SIDE_BY_SIDE:
                self.begin()
            if now + start > next_trouble:
                self.disturb(self.rng.choice([*self.jobs, numbers]))
                next_trouble = time.monotonic() + self.rng.expovariate(1 / PAUSE_S)
            if now + start > next_sample and now < seconds:
                self.options.say(self.growth.sample(now, ()))
                next_sample = now + start + 0.5
            self.spares_one = now > seconds / 2
            if now + start > next_question and now < seconds:
                self.ask(now)
                next_question = time.monotonic() + ASK_S
            for job in [job for job in self.jobs if job.execution.done() or time.time() > job.ends + JOB_S]:
                self.jobs.remove(job)
                self.judge(job)
            self.tally.check(not running.done(), f"the job of numbers has ended: {running!r}")
            if running.done():
                break
            time.sleep(0.02)
        if not running.done():
            numbers.cancel_and_export_snapshot("numbers", timeout=HANG_S)
            with contextlib.suppress(CancelledError):
                running.result(HANG_S)
            self.tally.check(not (wrong := gaps_in(self.folder)), f"numbers: {wrong}")
        self.check_memory(seconds)

    def ask(self, at: float) -> None:
        """Ask workers what they have in use; a worker that was killed just now is left out."""
        dag = DAG()
        told = dag.new_vertex("in use", InUse)
        dag.edge(between(told, dag.new_vertex("list", processors.write_list("in use"))))
        with contextlib.suppress(WorkerLostError):
            self.jet.new_job(dag).run(HANG_S)
        found = self.jet.get_list("in use")
        for pid, size in found:
            self.growth.workers[pid].append((at, size))
            self.options.say(f"{at:.1f} s: worker {pid} has {size:.2f} MB in use")
        found.clear()

    def begin(self) -> None:
        """Start a job of a random kind."""
        kind = self.rng.choice(self.options.only or KINDS)
        self.next_seed += 2
        folder = self.folder / str(self.next_seed)
        folder.mkdir()
        self.jobs.append(Streaming(self.jet, kind, self.next_seed, folder))
        self.kinds[kind] += 1

    def judge(self, job: Streaming) -> None:
        """Compare what a job has written."""
        if not job.execution.done():
            waits = f"{job.job.explain_time()}"
            self.tally.complain(f"HANG: {job.name} is {job.job.status.name} {JOB_S} s after its last event: {waits}")
            job.execution.cancel()
            return
        error = job.execution.exception()
        wrong = f"{type(error).__name__}: {error}" if error else job.complaint()
        self.tally.check(not wrong, f"{job.name}, moved {job.moves} times: {wrong}")
        self.options.say(f"{job.name}: {wrong or 'exact'}")
        self.tally.done += 1
        if not wrong:
            shutil.rmtree(job.folder)
        for snapshot in self.jet.snapshots():
            if snapshot.name.startswith(job.name):
                snapshot.destroy()

    # -- disturbances ----------------------------------------------------------------------------------------------

    def disturb(self, target: Any) -> None:
        """Do something to a job, or to a worker under all of them."""
        choices = ["carrier", "graceful", "forceful", "suspend"] * 2 + ["worker"]
        choices += ["move"] if isinstance(target, Streaming) else ["export"]
        what = self.rng.choice(choices)
        try:
            getattr(self, f"_{what}")(target)
            self.done[what] += 1
        except JobStateError:  # it has ended, or is between two states
            pass

    def _worker(self, _: Any) -> None:
        workers = self.jet.cluster.members[0].workers
        kill(workers[0] if self.spares_one else self.rng.choice(workers))

    def _carrier(self, _: Any) -> None:
        workers = set(self.jet.cluster.members[0].workers)
        carriers = [pid for pid in marked(self.mark) if pid not in workers and name_of(pid).startswith("shmjet-w")]
        if carriers:
            kill(self.rng.choice(carriers))

    def _graceful(self, target: Any) -> None:
        job_of(target).restart(graceful=True)

    def _forceful(self, target: Any) -> None:
        job_of(target).restart(graceful=False)

    def _suspend(self, target: Any) -> None:
        job = job_of(target)
        job.suspend()
        self._wait_for(job, JobStatus.SUSPENDED)
        time.sleep(self.rng.random())
        if job.status is JobStatus.SUSPENDED:
            job.resume()

    def _export(self, target: Any) -> None:
        job_of(target).export_snapshot("numbers", timeout=HANG_S)

    def _move(self, target: Streaming) -> None:
        """Cancel the job with an export, and go on from that with another job."""
        name = f"{target.name}-moved"
        target.job.cancel_and_export_snapshot(name, timeout=HANG_S)
        self._wait_for(target.job, JobStatus.FAILED)
        target.moves += 1
        target.start(name)

    def _wait_for(self, job: Any, status: JobStatus) -> None:
        deadline = time.monotonic() + HANG_S
        while job.status not in (status, JobStatus.COMPLETED, JobStatus.FAILED):
            if time.monotonic() > deadline:
                self.tally.complain(f"HANG: {job.name} is {job.status.name} instead of {status.name}")
                return
            time.sleep(0.005)

    def check_memory(self, seconds: float) -> None:
        """See whether anything grows."""
        floors = self.growth.floors(self.growth.client, seconds)
        rise = floors[-1][1] - floors[0][1]
        for points in self.growth.workers.values():
            points[:] = [point for point in points if point[0] >= max(points[0][0] + WARM_S, seconds / 2)]
        member, worker = self.growth.client_slope(seconds), self.growth.worker_slope()
        if seconds >= LONG_S:
            for who, slope in (("the member", member), ("a worker", worker)):
                self.tally.check(slope < SLOPE, f"{who} grows by {slope:.2f} MB a minute, more than {SLOPE}")
        else:
            self.tally.check(rise < MOST_MB, f"the member has grown by {rise:.0f} MB, more than {MOST_MB}")
        self.tally.notes.append(" ".join(f"{kind} {times}" for kind, times in sorted(self.kinds.items())))
        self.tally.notes.append(" ".join(f"{what} {times}" for what, times in sorted(self.done.items())))
        self.tally.notes.append(
            f"floor of the member's memory {floors[0][1]:.0f} to {floors[-1][1]:.0f} MB, lately {member:+.2f} MB/min; "
            f"a worker {worker:+.2f} MB/min"
        )


def job_of(target: Any) -> Any:
    """The job that is disturbed."""
    return target.job if isinstance(target, Streaming) else target


def kill(pid: int) -> None:
    """Kill a process, which may have gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> int:
    options = parse_options(__doc__, count=600, ci=40, parts=KINDS)
    alone = private_shm()
    mark = mark_processes()
    tally = Tally("streams", options)
    with tempfile.TemporaryDirectory() as place:
        soak = Soak(options, tally, mark, Path(place))
        soak.run(options.count)
        soak.jet.shutdown()
        tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
        if alone:
            tally.check(not names(), f"left in /dev/shm: {names()}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
