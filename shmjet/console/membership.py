"""One member as the console watches it: what was read of it last, and minutes of its use of the machine.

Its counters are read where they are, in shared memory; it is asked only when executions have come or gone. As an answer
may be long in coming, all that is done with a member is done in a thread of its own. A member of another host is seen
over the network, and asked each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from shmjet.cluster.lifecycle_messages import RestartExecution, ResumeExecution, SuspendExecution
from shmjet.cluster.monitor.base import MonitoredMember
from shmjet.cluster.protocol import Attached, ExecutionRow, PartitionCounts
from shmjet.console.history import History
from shmjet.console.job_tracker import JobTrack
from shmjet.console.processes import ProcessMeter, Usage
from shmjet.console.snapshot import MemberCard, WorkerCard
from shmjet.core import JobStatus, MemberLostError, ShmjetError
from shmjet.execution.metrics import NO_METRICS, Metrics, WorkerMetrics

MOST_JOBS = 100
"""Jobs that have ended and are listed, for each member."""
SHOWN_WITHOUT_S = 1.0
"""How long a page waits for what a member has not told yet, in seconds, before it is shown without."""

T = TypeVar("T")
SteeringRequest = SuspendExecution | ResumeExecution | RestartExecution
"""What a console may ask of a job, apart from its end."""


class ExecutionTotals:
    """Counts executions that a member leads and how they ended, including executions that it has forgotten since.

    A member numbers them from 1, in the lower half of their ids; the upper half tells the members of clusters apart.
    Each further attempt of an execution takes a number, too. Ends that the member had forgotten before they were seen
    are not in it: it remembers a thousand.
    """

    def __init__(self) -> None:
        self.started = 0
        self.ended: Counter[str] = Counter()
        self._open: set[int] = set()
        self._highest = 0
        self._attempts: dict[int, int] = {}
        self._further = 0
        """Attempts whose numbers have not been passed over yet."""

    def take(self, rows: Iterable[ExecutionRow]) -> None:
        """Take all executions that the member remembers."""
        led = sorted(((row.id & 0xFFFFFFFF, row) for row in rows if row.leads), key=lambda pair: pair[0])
        self._note_attempts(led)
        for number, row in led:
            if number > self._highest:
                skipped = number - self._highest - 1
                others = min(skipped, self._further)
                self._further -= others
                self.started += 1 + skipped - others
                self._highest = number
            elif number not in self._open:
                continue
            if JobStatus(row.status).is_terminal:
                self._open.discard(number)
                self.ended["cancelled" if row.cancelled else row.status] += 1
            else:
                self._open.add(number)

    def _note_attempts(self, led: Iterable[tuple[int, ExecutionRow]]) -> None:
        now = {number: row.attempts for number, row in led}
        self._further += sum(count - self._attempts.get(number, 1) for number, count in now.items())
        self._attempts = now


class WatchedMember:
    """A member that is, or was, watched.

    Args:
        key: names the member.
        connect: leads to it.
    """

    def __init__(self, key: str, connect: Callable[[], MonitoredMember]) -> None:
        self._connect = connect
        self._last: MonitoredMember | None = None
        self.totals = ExecutionTotals()
        self.tracks: dict[str, JobTrack] = {}
        self.workers: list[WorkerMetrics] = []
        self.partitions = PartitionCounts()
        self.usage: dict[int, Usage] = {}
        """What its processes used when it was last looked at, by pid."""
        self.ended = False
        self.asked_at: float | None = None
        """Since when it has not answered, by the monotonic clock; None when it has."""
        self._seen: MonitoredMember | None = None
        self._about: Attached | None = None
        self._program = ""
        self._meter = ProcessMeter()
        self._busy: dict[int, float] = {}
        self._history = History(("cpu", "busy", "memory"))
        self._describing: dict[str, asyncio.Future[None]] = {}
        self._thread = ThreadPoolExecutor(1, f"shmjet-console-{key[-4:]}")

    @property
    def about(self) -> Attached | None:
        """Who it is; None before the first answer."""
        return self._about

    def is_of(self, pid: int) -> bool:
        """Whether this is the pid of the member, of the process that started it, or of a worker."""
        about = self._about
        return about is not None and pid in (about.pid, about.client_pid, *about.workers)

    # -- in the event loop ------------------------------------------------------------------------------------------

    async def sample(self) -> None:
        """Sample the member once; if it is gone, mark it so."""
        await self._in_thread(self._look)

    async def describe(self, track: JobTrack) -> None:
        """Learn what is not known yet of a job that is looked at: its DAG, and, once it has ended, how.

        When that takes long the page is shown without it; it will be there another time.
        """
        if self.ended or (track.is_described and (track.is_final or track.is_followed)):
            return
        job_id = track.row.job_id
        if job_id not in self._describing:
            self._describing[job_id] = asyncio.ensure_future(self._in_thread(lambda: self._describe(track)))
        await asyncio.wait([self._describing[job_id]], timeout=SHOWN_WITHOUT_S)
        if job_id in self._describing and self._describing[job_id].done():
            del self._describing[job_id]

    async def cancel(self, track: JobTrack) -> None:
        """Ask for the end of a job.

        Raises:
            MemberLostError: the member is gone, or does not answer.
        """
        await self._in_thread(lambda: self._with(lambda seen: seen.cancel(track.row)))

    async def steer(self, track: JobTrack, what: type[SteeringRequest]) -> None:
        """Suspend a job, let it go on, or restart it.

        Raises:
            MemberLostError: the member is gone, or does not answer.
            ShmjetError: that does not go with the job's status.
        """
        await self._in_thread(lambda: self._with(lambda seen: seen.ask(lambda number: what(number, track.row.id))))

    async def readings(self) -> list[tuple[JobTrack, Metrics]]:
        """Return the metrics of all jobs: of running jobs read now, of ended jobs as last read."""
        if not self.ended:
            await asyncio.wait([asyncio.ensure_future(self.sample())], timeout=SHOWN_WITHOUT_S)
        return [(track, track.metrics) for track in self.tracks.values() if track.metrics is not NO_METRICS]

    async def close(self) -> None:
        """Leave it; it goes on without being watched. May be called twice."""
        for describing in self._describing.values():
            describing.cancel()
        with contextlib.suppress(RuntimeError):  # it has been left
            await self._in_thread(self._detach)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- in its thread ----------------------------------------------------------------------------------------------

    def _connection(self) -> MonitoredMember:
        if self._seen is None:
            self._seen = self._last = self._connect()
            self._about = self._seen.about
            self._program = _program(self._seen)
        return self._seen

    def _with(self, work: Callable[[MonitoredMember], T]) -> T:
        """Call `work` with the connection; drop a connection without an answer: it may still come, too late."""
        try:
            return work(self._connection())
        except MemberLostError:
            self._detach()
            raise

    def _detach(self) -> None:
        if self._seen is not None:
            self._seen.close()
            self._seen = None

    def _look(self) -> None:
        self.asked_at = time.monotonic()
        try:
            seen = self._connection()
            if not seen.is_alive():
                raise MemberLostError(f"the member (pid {seen.pid}) has ended")
            rows = seen.executions()
            self._follow(rows)
            self.partitions = seen.partitions()
            for track in list(self.tracks.values()):
                if track.is_followed:
                    self._read(seen, track)
            self._look_at_processes(seen)
        except MemberLostError:
            self._lose()
        self.asked_at = None

    def _read(self, seen: MonitoredMember, track: JobTrack) -> None:
        """Read a job's metrics: if several members take part, the whole is shown, and this member's part exported.

        Without `_with`: `_look` handles an answer that does not come.
        """
        whole = seen.whole(track.row)
        crosses = any(processor.member for vertex in whole.vertices.values() for processor in vertex.processors)
        track.read(whole, time.time(), seen.metrics(track.row) if crosses else whole)

    def _has_ended(self) -> bool:
        if self._last is None:
            return True
        try:
            return not self._last.is_alive()
        except MemberLostError:  # no member can be asked now
            return False

    def _lose(self) -> None:
        if self._has_ended():  # else it is only slow: the next look asks anew
            self.ended = True
            self.usage, self._busy = {}, {}
            for track in self.tracks.values():
                track.lose(time.time())
        self._detach()

    def _follow(self, rows: list[ExecutionRow]) -> None:
        self.totals.take(rows)
        newest = {row.job_id: row for row in rows}
        counts = Counter(row.job_id for row in rows)
        living = [job_id for job_id, row in newest.items() if not JobStatus(row.status).is_terminal]
        ended = [job_id for job_id, row in newest.items() if JobStatus(row.status).is_terminal]
        assert self._about is not None
        before, tracks = self.tracks, {}
        for job_id in sorted([*ended[-MOST_JOBS:], *living], key=lambda job_id: newest[job_id].id):
            track = before.get(job_id)
            if track is None:
                track = JobTrack(self._about.uuid, newest[job_id], counts[job_id])
            else:
                track.follow(newest[job_id], counts[job_id])
            tracks[job_id] = track
        self.tracks = tracks

    def _describe(self, track: JobTrack) -> None:
        with contextlib.suppress(ShmjetError):  # it is gone, silent, or has forgotten the job
            if not track.is_described:
                track.describe(self._with(lambda seen: seen.job(track.row.job_id)))
            if not track.is_running and not track.is_final:
                self._with(lambda seen: self._read(seen, track))

    def _look_at_processes(self, seen: MonitoredMember) -> None:
        before = {worker.index: worker for worker in self.workers}
        self.workers = seen.workers()
        usage = self._meter.look(seen.usage(), time.monotonic())
        self._busy = {
            worker.index: busy_share(
                worker, before.get(worker.index), usage[worker.pid].cpu if worker.pid in usage else 0.0
            )
            for worker in self.workers
        }
        self.usage = usage
        if not before:  # shares since the member started would look like a peak just now
            return
        busy = sum(self._busy.values()) / max(1, len(self._busy))
        self._history.add(time.time(), self._cpu(), busy, self._memory())

    def _cpu(self) -> float:
        return sum(usage.cpu for usage in self.usage.values())

    def _memory(self) -> int:
        return sum(usage.resident for usage in self.usage.values())

    # -- for the page -----------------------------------------------------------------------------------------------

    def card(self, patience: float) -> MemberCard | None:
        """Return what the page shows of it; None before the first answer.

        Args:
            patience: seconds after which a member that does not answer is called silent.
        """
        about, asked_at = self._about, self.asked_at
        if about is None:
            return None
        return MemberCard(
            about.uuid,
            about.address,
            about.pid,
            str(about.settings["cluster_name"]),
            self._program,
            about.started_at,
            self.ended,
            asked_at is not None and time.monotonic() - asked_at > patience,
            self._cpu(),
            self._memory(),
            [self._worker_card(worker) for worker in self.workers],
            self._history.series(),
            self.totals.started,
            self.totals.ended["failed"],
            *msgspec.structs.astuple(self.partitions),
        )

    def _worker_card(self, worker: WorkerMetrics) -> WorkerCard:
        usage = Usage(0.0, 0.0, 0) if worker.pid is None else self.usage.get(worker.pid, Usage(0.0, 0.0, 0))
        busy = round(self._busy.get(worker.index, 0.0), 4)
        return WorkerCard(worker.index, worker.pid, worker.core, busy, usage.cpu, usage.resident, worker.tasklets)


def busy_share(now: WorkerMetrics, before: WorkerMetrics | None, cpu: float) -> float:
    """Return the share of the time since `before` that a worker did not sleep.

    Args:
        now: what it has counted.
        before: what it had counted then; None when that is not known.
        cpu: the share of a core that it used since. A worker counts when it wakes up and between calls; if it has
            counted nothing has slept all the time, or is in a long call: `cpu` tells which.
    """
    if before is not None and before.pid == now.pid:
        busy, idle = now.busy_ns - before.busy_ns, now.idle_ns - before.idle_ns
        if busy + idle > 0:
            return min(1.0, max(0.0, busy / (busy + idle)))
    return min(1.0, cpu)


def _program(seen: MonitoredMember) -> str:
    """Return the program that started a member; the address, for a member without one or on another host."""
    pid = seen.about.client_pid
    if not pid or not seen.is_here:
        return seen.about.address
    try:
        return program_name(psutil.Process(pid).cmdline()) or f"process {pid}"
    except psutil.Error:
        return f"process {pid}"


def program_name(words: Sequence[str]) -> str:
    """Return a command line up to the name of the script, for what follows may be a secret; a title of shmjet's whole.

    Example:
        >>> program_name(["/usr/bin/python3", "-u", "jobs/import.py", "--password=x"])
        'python3 import.py'
        >>> program_name(["python", "-m", "pytest", "-q"]), program_name(["python", "-c", "print()"])
        ('python -m pytest', 'python -c')
        >>> program_name(["shmjet: worker 0 of pool 77, core 3", "", ""])
        'shmjet: worker 0 of pool 77, core 3'
    """
    if not words:
        return ""
    if words[0].startswith("shmjet: "):  # a worker that has started a member: see `host.child_process.name_process`
        return words[0]
    name = Path(words[0]).name
    for place, word in enumerate(words[1:], 1):
        if word == "-c":
            return f"{name} -c"
        if word == "-m":
            return " ".join([name, word, *words[place + 1 : place + 2]])
        if not word.startswith("-"):
            return f"{name} {Path(word).name}"
    return name
