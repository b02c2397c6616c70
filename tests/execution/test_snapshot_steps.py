"""Tests for the states of a tasklet that belong to snapshots: which callback comes when, and what is reported."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet._native import Codec
from shmjet.core import DAG, BroadcastKey, Inbox, JobConfig, ProcessingGuarantee, Processor, ProcessorError, between
from shmjet.core.outbox import OutboxError
from shmjet.execution.messages import AtEnd, Resolve, Resolved, Save, Saved
from shmjet.execution.tasklet import State
from shmjet.snapshots.chunk import ChunkReader
from shmjet.snapshots.manifest import OWNED, Manifest, ProcessorRecord, SavedVertex, write_manifest
from tests.execution.harness import LocalRun

LOG: list[Any] = []
"""What was called, by the processors of this module, in order."""


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.clear()


class Recording(Processor):
    """Says what is called; subclasses say what it does."""

    name = "?"
    prepared_at = 1
    finished_at = 1
    prepares = finishes = 0

    def save_to_snapshot(self) -> bool:
        LOG.append(f"{self.name} save")
        return self.outbox.offer_to_snapshot(self.name, 1)

    def snapshot_commit_prepare(self) -> bool:
        self.prepares += 1
        LOG.append(f"{self.name} prepare")
        return self.prepares >= self.prepared_at

    def snapshot_commit_finish(self, success: bool) -> bool:
        self.finishes += 1
        LOG.append(f"{self.name} finish {success}")
        return self.finishes >= self.finished_at

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        LOG.append(f"{self.name} restore {inbox.take()}")

    def finish_snapshot_restore(self) -> bool:
        LOG.append(f"{self.name} restored")
        return True

    def close(self) -> None:
        LOG.append(f"{self.name} close")


class Source(Recording):
    """Emits an item whenever it is called while `ITEMS` says so, and ends on request."""

    name = "source"
    movable = False
    left = 3
    ends = False

    def complete(self) -> bool:
        LOG.append("source complete")
        if self.left and self.outbox.offer(self.left):
            self.left -= 1
        self.next_call = math.inf
        return self.ends


class LastingSource(Source):
    """Has state at its end, too."""

    _saves_at_end = True


class Sink(Recording):
    """Takes items while it may."""

    name = "sink"
    takes = True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        if self.takes:
            LOG.extend(f"sink got {item}" for item in inbox.take())

    def complete(self) -> bool:
        LOG.append("sink complete")
        return True


class Manual:
    """A source and a sink on one worker, with orders by hand."""

    def __init__(
        self,
        folder: Path,
        guarantee: ProcessingGuarantee = ProcessingGuarantee.EXACTLY_ONCE,
        manifest: str = "",
        source_class: type[Source] = Source,
    ) -> None:
        dag = DAG()
        source, sink = dag.new_vertex("source", source_class, 1), dag.new_vertex("sink", Sink, 1)
        dag.edge(between(source, sink))
        self.folder = folder
        self.run = LocalRun(dag, 1, config=JobConfig(processing_guarantee=guarantee), manifest=manifest)
        self.source, self.sink = (tasklet.processor for tasklet in self.run.deployments[0].tasklets)

    def __enter__(self) -> Manual:
        return self

    def __exit__(self, *_: object) -> None:
        snapshots = self.run.deployments[0].snapshots
        if snapshots is not None:
            snapshots.close()
        self.run.close()

    def order(self, order: Save | Resolve) -> list[str]:
        """Give an order, let the worker go on, and return what was called."""
        self.run.deployments[0].order(order)
        self.run.wake(self.run.deployments[0])
        return self.go_on()

    def save(self, snapshot_id: int, terminal: bool = False, prepares: bool = True) -> list[str]:
        return self.order(Save(1, snapshot_id, terminal, prepares, str(self.folder)))

    def resolve(self, snapshot_id: int, success: bool = True) -> list[str]:
        return self.order(Resolve(1, snapshot_id, success))

    def go_on(self) -> list[str]:
        LOG.clear()
        self.run.step(30)
        return list(LOG)

    def end_source(self) -> list[str]:
        self.source.ends = True
        self.source.next_call = None
        tasklet = self.run.deployments[0].tasklets[0]
        tasklet.due_ns, tasklet.runnable = 0, True
        self.run.wake(self.run.deployments[0])
        return self.go_on()

    def reports(self) -> list[Any]:
        snapshots = self.run.deployments[0].snapshots
        assert snapshots is not None
        return snapshots.take_reports()

    def states(self) -> list[State]:
        return [tasklet.state for tasklet in self.run.deployments[0].tasklets]


def saved_places(report: Saved) -> list[tuple[int, bool]]:
    return sorted((saved.vertex, saved.finished) for saved in report.processors)


def test_source_that_sleeps_saves_and_the_sink_saves_after_its_barrier(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        assert manual.go_on()[:3] == ["source complete", "sink got 3"]
        assert manual.save(1) == ["source save", "source prepare", "sink save", "sink prepare"]
        (report,) = manual.reports()
        assert (report.snapshot_id, report.error, saved_places(report)) == (1, None, [(0, False), (1, False)])
        assert manual.resolve(1) == ["source finish True", "sink finish True"]
        assert manual.reports() == [Resolved(1, 1, [(0, 0), (1, 0)])]
        assert manual.save(2) == ["source save", "source prepare", "sink save", "sink prepare"]


def test_export_neither_prepares_nor_finishes(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        assert manual.save(1, prepares=False) == ["source save", "sink save"]
        assert saved_places(manual.reports()[0]) == [(0, False), (1, False)]
        assert manual.resolve(1) == []
        assert manual.reports() == [Resolved(1, 1, [(0, 0), (1, 0)])]


def test_callbacks_are_repeated_until_they_say_true(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.source.prepared_at = manual.source.finished_at = 3
        assert manual.save(1)[:4] == ["source save", *["source prepare"] * 3]
        assert manual.resolve(1, success=False).count("source finish False") == 3


def test_phase_two_comes_with_items_in_the_inbox(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.save(1)
        manual.sink.takes = False
        manual.end_source()
        assert manual.run.deployments[0].tasklets[1].state is State.PROCESS_INBOX
        assert "sink finish True" in manual.resolve(1)
        manual.sink.takes = True
        assert "sink got 2" in manual.go_on()


def test_terminal_snapshot_ends_all_tasklets_without_another_call(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        assert manual.save(1, terminal=True) == ["source save", "source prepare", "sink save", "sink prepare"]
        assert manual.states() == [State.WAIT_FOR_SNAPSHOT] * 2
        assert not any(saved.finished for saved in manual.reports()[0].processors)
        assert manual.end_source() == []
        assert manual.resolve(1) == ["source finish True", "sink finish True"]
        assert manual.states() == [State.END] * 2
        assert manual.reports() == [Resolved(1, 1, [(0, 0), (1, 0)])]


def test_job_goes_on_after_a_terminal_snapshot_that_failed(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.save(1, terminal=True)
        assert manual.resolve(1, success=False)[:2] == ["source finish False", "sink finish False"]
        assert "sink got 2" in manual.end_source()


def test_sink_completes_after_a_last_snapshot(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.end_source()
        assert "sink complete" not in LOG
        assert manual.reports() == [AtEnd(1, [(1, 0)])]
        assert manual.save(1) == ["sink save", "sink prepare"]
        assert saved_places(manual.reports()[0]) == [(0, True), (1, False)]
        assert manual.resolve(1, success=False) == ["sink finish False"]
        assert manual.save(2) == ["sink save", "sink prepare"]
        assert saved_places(manual.reports()[0]) == [(0, True), (1, False)]
        assert manual.resolve(2) == ["sink finish True", "sink complete"]
        assert manual.states() == [State.END] * 2


def test_export_does_not_let_a_sink_complete(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.end_source()
        manual.save(1, prepares=False)
        assert manual.resolve(1) == []
        manual.save(2)
        assert manual.resolve(2) == ["sink finish True", "sink complete"]


def test_sink_of_a_job_without_a_guarantee_does_not_wait(tmp_path: Path) -> None:
    with Manual(tmp_path, ProcessingGuarantee.NONE) as manual:
        manual.go_on()
        assert manual.run.deployments[0].snapshots is None
        assert "sink complete" in manual.end_source()


def test_source_that_completes_between_the_phases_waits_for_the_second(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.save(1)
        assert "source complete" in manual.end_source()
        assert manual.states()[0] is State.WAIT_FOR_SNAPSHOT
        manual.reports()
        assert manual.resolve(1)[0] == "source finish True"
        assert manual.states()[0] is State.END
        manual.reports()
        manual.save(2)
        assert saved_places(manual.reports()[0]) == [(0, True), (1, False)]


def test_ended_processor_is_reported_until_a_snapshot_with_it_is_valid(tmp_path: Path) -> None:
    with Manual(tmp_path, source_class=LastingSource) as manual:
        manual.go_on()
        assert manual.end_source()[-1] == "source save"
        for snapshot_id, prepares, success in [(1, True, False), (2, False, True), (3, True, True)]:
            manual.save(snapshot_id, prepares=prepares)
            saved = next(r for r in manual.reports() if isinstance(r, Saved)).processors
            assert [(one.vertex, sum(piece.entries for piece in one.pieces)) for one in saved if one.finished] == [
                (0, 1)
            ]
            manual.resolve(snapshot_id, success=success)
            manual.reports()


def test_folder_that_takes_no_file_fails_the_snapshot_and_nothing_else(tmp_path: Path) -> None:
    with Manual(tmp_path / "missing") as manual:
        manual.go_on()
        manual.save(1)
        (report,) = manual.reports()
        assert "No such file or directory" in report.error
        assert saved_places(report) == [(0, False), (1, False)]
        manual.resolve(1, success=False)
        manual.folder = tmp_path
        manual.reports()
        manual.save(2)
        assert [report.error for report in manual.reports()] == [None]
        assert [path.name for path in tmp_path.iterdir()] == ["2-1-0.chunk"]


def test_no_file_is_made_when_nothing_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Manual(tmp_path) as manual:
        for processor in (manual.source, manual.sink):
            processor.save_to_snapshot = lambda: True
        manual.go_on()
        manual.save(1)
        assert [one.pieces for one in manual.reports()[0].processors] == [[], []]
        assert not list(tmp_path.iterdir())


def test_key_without_canonical_bytes_fails_the_attempt(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.source.save_to_snapshot = lambda: manual.source.outbox.offer_to_snapshot([1], 2)
        manual.go_on()
        with pytest.raises(
            TypeError, match=r"an entry of offer_to_snapshot\(\) cannot be saved under its key: \[1\].*cannot be a key"
        ):
            manual.save(1)


def test_entry_that_was_refused_and_forgotten_is_an_error(tmp_path: Path) -> None:
    def save() -> bool:
        while manual.source.outbox.offer_to_snapshot(object.__hash__(LOG), 1):
            pass
        return True

    with Manual(tmp_path) as manual:
        manual.source.save_to_snapshot = save
        manual.go_on()
        with pytest.raises(OutboxError, match="never offered"):
            manual.save(1)


def test_large_state_is_saved_in_slices(tmp_path: Path) -> None:
    entries = [(f"key {i}", (i, float(i))) for i in range(40_000)]

    def save() -> bool:
        LOG.append("slice")
        while left:
            if not manual.source.outbox.offer_to_snapshot(*left[-1]):
                return False
            left.pop()
        return True

    left = list(entries)
    with Manual(tmp_path) as manual:
        manual.source.save_to_snapshot = save
        manual.go_on()
        called = manual.save(1)
        while "source prepare" not in called:
            called += manual.go_on()
        assert called.count("slice") > 5
        manual.go_on()
        source = next(saved for saved in manual.reports()[0].processors if saved.vertex == 0)
        reader = ChunkReader(tmp_path, Codec())
        found = [entry for piece in source.pieces for entry in reader.entries(piece)]
        reader.close()
        assert sorted(found) == sorted(entries)
        assert {piece.partition for piece in source.pieces} == {OWNED}
        assert max(piece.size for piece in source.pieces) < 512 << 10


@pytest.mark.parametrize(("size", "are_one"), [(10, True), (100_000, False)])
def test_few_entries_make_one_piece_unless_they_are_large(tmp_path: Path, size: int, are_one: bool) -> None:
    with Manual(tmp_path) as manual:
        entries = iter([(i, [b"x" * size, i]) for i in range(20)])
        manual.source.save_to_snapshot = lambda: manual.source.outbox.offer_all_to_snapshot(entries)
        manual.go_on()
        manual.save(1)
        source = next(saved for saved in manual.reports()[0].processors if saved.vertex == 0)
        assert (len(source.pieces) == 1) is are_one
        assert sum(piece.entries for piece in source.pieces) == 20


def test_restored_processors_get_entries_before_anything_else(tmp_path: Path) -> None:
    with Manual(tmp_path) as manual:
        manual.go_on()
        manual.sink.save_to_snapshot = lambda: manual.sink.outbox.offer_to_snapshot(BroadcastKey("b"), 5)
        manual.save(1)
        records = [
            SavedVertex(name, 1, 271, [ProcessorRecord(0, False, saved.pieces)])
            for name, saved in zip(("source", "sink"), manual.reports()[0].processors, strict=True)
        ]
    write_manifest(tmp_path / "1.manifest", Manifest("l", 1, "j", None, 0.0, False, records))
    with Manual(tmp_path, manifest=str(tmp_path / "1.manifest")) as manual:
        called = manual.go_on()
        order = ["source restore [('source', 1)]", "source restored", "source complete"]
        assert [call for call in called if call.startswith("source")] == order
        assert "sink restore [(BroadcastKey(key='b'), 5)]" in called
        assert called.index("sink restored") < called.index("sink got 3")


def test_sources_that_do_not_say_what_is_left_need_as_many_processors(tmp_path: Path) -> None:
    records = [ProcessorRecord(0, True, [], tells_rest=False), ProcessorRecord(1, False, [])]
    vertices = [SavedVertex("source", 2, 271, records)]
    write_manifest(tmp_path / "1.manifest", Manifest("l", 1, "j", None, 0.0, False, vertices))
    with (
        Manual(tmp_path, manifest=str(tmp_path / "1.manifest")) as manual,
        pytest.raises(ProcessorError, match="'source' had 2 processors in the snapshot, 1 had ended, and has 1 now"),
    ):
        manual.go_on()


def test_finished_processors_go_straight_to_their_end(tmp_path: Path) -> None:
    vertices = [SavedVertex("source", 3, 271, [ProcessorRecord(p, True, []) for p in range(3)])]
    write_manifest(tmp_path / "1.manifest", Manifest("l", 1, "j", None, 0.0, False, vertices))
    with Manual(tmp_path, manifest=str(tmp_path / "1.manifest")) as manual:
        called = manual.go_on()
        assert "source complete" not in called
        assert manual.states()[0] is State.END
        assert manual.save(1) == ["sink save", "sink prepare"]
        assert (0, True) in saved_places(next(r for r in manual.reports() if isinstance(r, Saved)))


def test_state_that_cannot_be_read_back_is_named_by_vertex_key_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Manual(tmp_path) as manual:
        manual.source.save_to_snapshot = lambda: manual.source.outbox.offer_to_snapshot("a", Forgotten())
        manual.go_on()
        manual.save(1)
        records = [ProcessorRecord(0, False, manual.reports()[0].processors[0].pieces)]
    vertices = [SavedVertex("source", 1, 271, records)]
    write_manifest(tmp_path / "1.manifest", Manifest("l", 1, "j", None, 0.0, False, vertices))
    monkeypatch.setattr(Forgotten, "is_known", False)
    text = (
        r"saved state of vertex 'source' cannot be read back: the entry of key 'a' needs \S+\._no_longer: .* no longer"
    )
    with pytest.raises(ProcessorError, match=text):  # before a processor is called
        Manual(tmp_path, manifest=str(tmp_path / "1.manifest"))


class Forgotten:
    """Saved by a version that knew it."""

    is_known = True

    def __reduce__(self) -> Any:
        return _no_longer, ()


def _no_longer() -> object:
    if Forgotten.is_known:
        return object()
    raise LookupError("no longer")


class Capturing(Source):
    """A source that captures its state, and saves it in so many calls."""

    _captures = True
    calls = 3

    def _capture(self) -> bool:
        LOG.append("source capture")
        self.captured = self.left
        return True

    def save_to_snapshot(self) -> bool:
        LOG.append("source save")
        self.calls -= 1
        return self.calls == 0 and self.outbox.offer_to_snapshot("left", self.captured)


def test_barrier_goes_on_when_state_is_captured_and_the_report_comes_when_it_is_saved(tmp_path: Path) -> None:
    with Manual(tmp_path, source_class=Capturing) as manual:
        manual.source.calls = 10**6
        manual.run.step(3)
        called = manual.save(1)
        assert called[:3] == ["source capture", "source prepare", "source save"]
        assert "sink save" in called
        assert saved_places(manual.reports()[0]) == [(1, False)]
        tasklet = manual.run.deployments[0].tasklets[0]
        assert not tasklet.is_at_rest
        manual.source.left = 0
        manual.source.calls = 1
        manual.go_on()
        (report,) = manual.reports()
        assert saved_places(report) == [(0, False)]
        (piece,) = report.processors[0].pieces
        reader = ChunkReader(tmp_path, Codec())
        (entry,) = reader.entries(piece)
        reader.close()
        assert entry == ("left", manual.source.captured)
        assert entry[1] > 0
        assert manual.resolve(1) == ["source finish True", "sink finish True"]


@pytest.mark.parametrize("terminal", [False, True])
def test_source_that_ends_while_it_is_saved_waits_for_phase_two(tmp_path: Path, terminal: bool) -> None:
    with Manual(tmp_path, source_class=Capturing) as manual:
        manual.source.calls = 10**6
        manual.save(1, terminal=terminal)
        assert ("source complete" in manual.end_source()) is not terminal
        assert manual.states()[0] is State.WAIT_FOR_SNAPSHOT
        manual.reports()
        manual.source.calls = 1
        assert "source save" in manual.go_on()
        assert saved_places(manual.reports()[0]) == [(0, False)]
        assert manual.resolve(1)[0] == "source finish True"
        assert manual.states()[0] is State.END
