"""The snapshots of an attempt: when each begins, what follows, and what lies in the folder afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from shmjet.cluster.jobs.attempt_snapshots import (
    AGAIN_S,
    FAILURES_AT_ONCE,
    LAST_TRIES,
    OPEN_SOURCES_S,
    AttemptSnapshots,
    early_vertices,
)
from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.phase import Phase
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.jobs.snapshot_taking import PHASE_S, SnapshotSource
from shmjet.cluster.lifecycle_messages import LastSnapshot, RunSettings
from shmjet.cluster.membership.peer_messages import (
    AskOpenSources,
    PartAtEnd,
    PartOpenSources,
    PartReady,
    PartResolved,
    PartSaved,
    ResolvePart,
    SavePart,
)
from shmjet.execution.job_plan import EdgePlan, JobShape, VertexShape
from shmjet.execution.messages import Failure, SavedProcessor
from shmjet.snapshots.manifest import Piece, read_manifest
from shmjet.snapshots.store import SnapshotStore

INTERVAL = 10.0


def shape(*names: str, edges: tuple[tuple[int, int, int], ...]) -> JobShape:
    vertices = [VertexShape(name, -1, -1, True, False, None) for name in names]
    return JobShape(
        vertices,
        [EdgePlan(a, 0, b, i, "unicast", priority, False, False, 1, 1) for i, (a, b, priority) in enumerate(edges)],
    )


LINE = shape("source", "count", "sink", edges=((0, 1, 0), (1, 2, 0)))
JOIN = shape("small", "map", "large", "join", edges=((0, 1, 0), (1, 3, -1), (2, 3, 0)))


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay, callback))
        return self.timers[-1]

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if not timer.cancelled and timer.at <= end + 1e-9]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.call()
        self.now = end


class Story:
    """An attempt on member "m" with one processor of each vertex."""

    def __init__(self, folder: Path, of: JobShape = LINE, *, sync: bool = False, **settings: object) -> None:
        self.clock = HandClock()
        self.sent: list[object] = []
        self.failures: list[Failure] = []
        self.terminal = 0
        settings = {"guarantee": "exactly_once", "snapshot_interval": INTERVAL, **settings}
        chosen = RunSettings(**settings)  # type: ignore[arg-type]
        self.store = SnapshotStore(folder, sync=sync)
        self.lineage = Lineage("l", self.store, chosen)
        self.count = len(of.vertices)
        self.shape = of
        self.begin()

    def begin(self) -> None:
        source = SnapshotSource(
            attempt=7, job_id="j", job_name="job", shape=self.shape, members=["m"], partition_count=271
        )
        self.snapshots = AttemptSnapshots(
            source,
            self.lineage,
            send=lambda _, message: self.sent.append(message),
            fail=self.failures.append,
            on_terminal=self._terminal,
            clock=self.clock,
        )
        self.snapshots.report("m", PartReady(7, [1] * self.count))
        self.snapshots.follow(Phase.PREPARING)
        self.snapshots.follow(Phase.RUNNING)

    def _terminal(self) -> None:
        self.terminal += 1

    def told(self) -> list[object]:
        sent, self.sent = self.sent, []
        return sent

    def chunk(self, number: int, vertex: int) -> list[Piece]:
        name = f"{number}-7-{vertex}.chunk"
        (self.store.root / "l" / name).write_text(name)
        return [Piece(0, name, 16, 40, 7, 1)]

    def save(self, number: int, *vertices: int, finished: bool = False, error: str | None = None) -> None:
        chosen = vertices or tuple(range(self.count))
        records = [SavedProcessor(v, 0, finished, self.chunk(number, v)) for v in chosen]
        self.snapshots.report("m", PartSaved(7, number, records, error))

    def resolve(self, number: int, *vertices: int) -> None:
        chosen = vertices or tuple(range(self.count))
        self.snapshots.report("m", PartResolved(7, number, [(v, 0) for v in chosen]))

    def takes(self, number: int, **how: object) -> None:
        """Have a snapshot begun, saved and resolved."""
        (order,) = self.told()
        assert isinstance(order, SavePart)
        assert order.snapshot_id == number
        self.save(number, **how)  # type: ignore[arg-type]
        (order,) = self.told()
        assert isinstance(order, ResolvePart)
        self.resolve(number)

    @property
    def valid(self) -> list[int]:
        return self.store.lineage("l").valid()


def test_a_snapshot_comes_an_interval_after_the_end_of_the_one_before(tmp_path: Path) -> None:
    story = Story(tmp_path)
    assert not story.told()
    story.clock.pass_by(INTERVAL - 1)
    assert not story.told()
    story.clock.pass_by(1)
    assert story.told() == [SavePart(7, 1, False, True, "l")]
    story.save(1)
    assert story.valid == [1]
    assert story.told() == [ResolvePart(7, 1, True)]
    story.clock.pass_by(5)
    story.resolve(1)
    story.clock.pass_by(INTERVAL - 1)
    assert not story.told()
    story.clock.pass_by(1)
    story.takes(2)
    manifest = read_manifest(story.lineage.restored_from())
    assert (manifest.snapshot_id, manifest.keys, [v.name for v in manifest.vertices]) == (
        2,
        3,
        ["source", "count", "sink"],
    )
    assert story.lineage.last is not None
    assert story.lineage.last.id == 2
    assert not story.failures


@pytest.mark.parametrize(("seconds", "size", "later"), [(3.0, 1 << 30, 3), (30.0, 1 << 20, 0)])
def test_the_first_snapshot_of_an_attempt_does_not_come_while_its_state_comes_back(
    tmp_path: Path, seconds: float, size: int, later: int
) -> None:
    story = Story(tmp_path)
    story.snapshots.follow(Phase.OVER)
    story.lineage.last = LastSnapshot(1, 0.0, seconds, size, 1, {})
    story.begin()
    story.clock.pass_by(INTERVAL + later - 0.5)
    assert not story.told()
    story.clock.pass_by(1)
    assert isinstance(story.told()[0], SavePart)


def test_a_failed_snapshot_leaves_the_one_before_and_no_files(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.clock.pass_by(INTERVAL)
    story.takes(1)
    story.clock.pass_by(INTERVAL)
    story.told()
    story.save(2, error="no space left on device")
    assert story.told() == [ResolvePart(7, 2, False)]
    story.resolve(2)
    assert story.valid == [1]
    assert not [name for name in (tmp_path / "l").iterdir() if name.name.startswith("2-")]
    story.clock.pass_by(INTERVAL)
    story.takes(3)
    assert story.valid == [3, 1]
    assert not story.failures


def test_a_snapshot_that_is_too_large_fails(tmp_path: Path) -> None:
    story = Story(tmp_path, max_state_bytes=100)
    story.clock.pass_by(INTERVAL)
    story.told()
    story.save(1)
    assert story.told() == [ResolvePart(7, 1, False)]
    assert story.valid == []


@pytest.mark.parametrize("phase", ["save", "resolve"])
def test_a_phase_that_takes_too_long_names_what_it_waits_for(tmp_path: Path, phase: str) -> None:
    story = Story(tmp_path)
    story.clock.pass_by(INTERVAL)
    if phase == "save":
        story.save(1, 0)
    else:
        story.save(1)
        story.clock.pass_by(PHASE_S - 1)
        story.resolve(1, 0)
    assert not story.failures
    story.clock.pass_by(PHASE_S)
    (failure,) = story.failures
    assert failure.restartable
    assert failure.vertex == "count"
    assert f"({phase}) of snapshot 1" in failure.text
    assert "it waits for vertex 'count', processor 0, and for 1 more" in failure.text


def test_without_a_guarantee_there_are_exports_only_and_one_that_hangs_fails_by_itself(tmp_path: Path) -> None:
    story = Story(tmp_path, guarantee="none")
    story.clock.pass_by(100 * INTERVAL)
    assert story.told() == []
    outcomes: list[str | None] = []
    story.snapshots.take(SnapshotRequest(name="x"), outcomes.append)
    story.takes(1)
    assert outcomes == [None]
    assert story.lineage.exported("x") is not None
    assert story.valid == []
    story.snapshots.take(SnapshotRequest(name="y"), outcomes.append)
    story.snapshots.take(SnapshotRequest(name="z"), outcomes.append)
    story.told()
    story.save(2, 0)
    story.clock.pass_by(PHASE_S)
    story.snapshots.take(SnapshotRequest(name="z"), outcomes.append)
    assert not story.failures
    assert len(outcomes) == 4
    for late in outcomes[1:]:
        assert late is not None
        assert "it waits for vertex 'count', processor 0" in late
    story.save(2, 1, 2)
    story.resolve(2)
    story.told()
    story.snapshots.take(SnapshotRequest(terminal=True, name="z"), outcomes.append)
    story.takes(3)
    assert outcomes[4:] == [None]
    assert (story.terminal, story.valid) == (1, [])
    story.clock.pass_by(100 * INTERVAL)
    assert story.told() == []


def test_the_last_snapshot_comes_at_once_when_only_sinks_wait(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.clock.pass_by(1)
    story.snapshots.report("m", PartAtEnd(7, [(2, 0)]))
    assert story.told() == [SavePart(7, 1, False, True, "l")]
    story.save(1, 0, 1, finished=True)
    story.save(1, 2)
    assert story.told() == [ResolvePart(7, 1, True)]
    story.resolve(1, 2)
    assert not story.told()
    manifest = read_manifest(story.lineage.restored_from())
    assert [record.finished for vertex in manifest.vertices for record in vertex.processors] == [True, True, False]


def test_a_last_snapshot_that_fails_is_tried_again_until_the_job_fails(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.snapshots.report("m", PartAtEnd(7, [(2, 0)]))
    for number in range(1, LAST_TRIES + 1):
        assert not story.failures
        story.takes(number, error="no space left on device")
        assert not story.told()
        story.clock.pass_by(AGAIN_S * 2 ** (number - 1))
    (failure,) = story.failures
    assert "no space left on device" in failure.text
    assert not failure.restartable


def test_a_processor_that_has_ended_is_in_all_later_snapshots(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.clock.pass_by(INTERVAL)
    story.save(1, 0, finished=True)
    story.save(1, 1, 2, error="no room")  # so what has been said of its end does not count
    story.resolve(1, 1, 2)
    story.told()
    for number in (2, 3, 4):
        story.clock.pass_by(INTERVAL)
        if number == 2:
            story.save(number, 0, finished=True)
        story.save(number, 1, 2)
        assert story.told()[1:] == [ResolvePart(7, number, True)]
        story.resolve(number, 1, 2)
    manifest = read_manifest(story.lineage.restored_from())
    assert manifest.vertices[0].processors[0].pieces[0].file == "2-7-0.chunk"
    assert (tmp_path / "l" / "2-7-0.chunk").exists()


def test_an_export_leaves_the_snapshots_of_the_job_alone(tmp_path: Path) -> None:
    story = Story(tmp_path)
    outcomes: list[str | None] = []
    story.clock.pass_by(INTERVAL)
    story.takes(1)
    story.snapshots.take(SnapshotRequest(name="x"), outcomes.append)
    assert story.told() == [SavePart(7, 2, False, False, "l")]
    story.save(2)
    assert story.told() == [ResolvePart(7, 2, False)]
    assert not outcomes
    story.resolve(2)
    assert outcomes == [None]
    assert story.valid == [1]
    exported = story.store.find("x")
    assert exported is not None
    assert exported.manifest.snapshot_id == 2
    assert sorted(path.name for path in exported.path.parent.glob("*.chunk")) == [f"2-7-{v}.chunk" for v in range(3)]
    assert not list((tmp_path / "l").glob("2-*"))


def test_a_terminal_snapshot_says_so_before_anything_ends(tmp_path: Path) -> None:
    story = Story(tmp_path)
    outcomes: list[str | None] = []
    story.snapshots.take(SnapshotRequest(terminal=True), outcomes.append)
    assert story.told() == [SavePart(7, 1, True, True, "l")]
    story.save(1)
    assert story.terminal == 1
    assert story.told() == [ResolvePart(7, 1, True)]
    story.snapshots.follow(Phase.FINISHING)  # its tasklets have ended before all reports were there
    assert outcomes == [None]


def test_a_terminal_snapshot_that_fails_is_always_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    story = Story(tmp_path)
    for number in range(1, FAILURES_AT_ONCE + 2):
        story.clock.pass_by(INTERVAL)
        story.told()
        story.save(number, error="no space left on device")
        story.resolve(number)
    caplog.clear()
    outcomes: list[str | None] = []
    story.snapshots.take(SnapshotRequest(terminal=True), outcomes.append)
    story.told()
    story.save(number + 1, error="no space left on device")
    story.resolve(number + 1)
    assert outcomes == ["no space left on device"]
    assert caplog.messages == [
        f"snapshot {number + 1} of job 'job' has failed: no space left on device; the job stops without it, and goes "
        "on from the one before it"
    ]


def test_requests_wait_for_the_snapshot_that_is_being_taken(tmp_path: Path) -> None:
    story = Story(tmp_path)
    outcomes: list[tuple[str, str | None]] = []
    story.clock.pass_by(INTERVAL)
    for name in ("x", "y"):
        story.snapshots.take(SnapshotRequest(name=name), lambda error, name=name: outcomes.append((name, error)))
    story.takes(1)
    story.takes(2)
    assert outcomes == [("x", None)]
    story.snapshots.follow(Phase.STOPPING)
    story.snapshots.take(SnapshotRequest(name="z"), lambda error: outcomes.append(("z", error)))
    assert [name for name, _ in outcomes] == ["x", "y", "z"]
    assert all(error is not None and "ended" in error for _, error in outcomes[1:])
    story.clock.pass_by(10 * INTERVAL)
    assert len(story.told()) == 1
    assert not story.failures


def test_what_drains_before_other_edges_has_to_end_first() -> None:
    assert early_vertices(LINE) == []
    assert early_vertices(JOIN) == [0, 1]


def test_a_snapshot_waits_for_the_ends_of_sources_of_higher_priority(tmp_path: Path) -> None:
    story = Story(tmp_path, JOIN)
    story.clock.pass_by(INTERVAL)
    ask = AskOpenSources(7, [0, 1])
    assert story.told() == [ask]
    story.snapshots.report("m", PartOpenSources(7, [1]))
    assert story.snapshots.postponed_for == ["map"]
    story.clock.pass_by(OPEN_SOURCES_S)
    assert story.told() == [ask]
    story.snapshots.report("m", PartOpenSources(7, []))
    story.takes(1)
    assert story.snapshots.postponed_for == []
    story.clock.pass_by(INTERVAL)
    story.takes(2)


def test_snapshots_are_removed_when_the_one_that_is_being_written_is(tmp_path: Path) -> None:
    async def story() -> None:
        lineage = Story(tmp_path).lineage
        folder, may_end = tmp_path / "l", asyncio.Event()

        async def write() -> None:
            await may_end.wait()
            (folder / "1.manifest").touch()

        writing = lineage.writes(write())
        lineage.remove()
        assert folder.exists()
        may_end.set()
        await writing
        await asyncio.sleep(0)  # to what is called back then
        assert not folder.exists()

    asyncio.run(story())


def test_an_unexpected_error_after_a_snapshot_counts_stops_the_attempt_and_undoes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        story = Story(tmp_path, sync=True)
        story.lineage.on_valid = lambda: [].pop()
        story.clock.pass_by(INTERVAL)
        assert story.told() == [SavePart(7, 1, False, True, "l")]
        story.save(1)
        async with asyncio.timeout(60):
            while not story.failures:
                await asyncio.sleep(0.01)
        assert story.failures[0].type_name == "IndexError"
        assert story.told() == []
        assert story.valid == [1]

    asyncio.run(story())
