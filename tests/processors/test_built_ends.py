from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from shmjet import sinks, sources
from shmjet.data.errors import ProcessorError, ShmjetError
from tests.examples import seeds

from .crashing import Attempt, Snapshot, run_source


class Position:
    def __init__(self, context: Any) -> None:
        self.index, self.count = context.global_index, context.total_parallelism
        self.at = self.index

    def fill(self, buffer: Any) -> None:
        for _ in range(7):
            if self.at >= 300:
                buffer.close()
                return
            buffer.add(self.at)
            self.at += self.count

    def restore(self, states: list[Any]) -> None:
        assert len(states) == self.count
        self.at = states[self.index]


def positioned() -> Any:
    return (
        sources.builder("numbers", Position)
        .fill_buffer_fn(Position.fill)
        .create_snapshot_fn(lambda position: position.at)
        .restore_snapshot_fn(Position.restore)
        .distributed(3)
        .build()
        .supplier
    )


@pytest.mark.parametrize("seed", seeds(10))
def test_a_built_source_with_snapshot_functions_emits_each_item_once_through_kills(seed: int) -> None:
    assert sorted(chain.from_iterable(run_source(positioned, seed, counts=[3]))) == list(range(300))


def test_a_restored_source_gets_the_states_of_all_processors_also_of_ended_ones_and_of_another_number() -> None:
    first = Attempt(positioned(), 3, room=lambda: 1000)
    for _ in range(100):
        first.complete(1)
    assert first.live == [0, 2]
    snapshot = Snapshot({index: first.ended.get(index) or first.save(index) for index in range(3)}, (1,), 3)
    seen: list[Any] = []
    source = (
        sources.builder("numbers", Position)
        .fill_buffer_fn(Position.fill)
        .create_snapshot_fn(lambda position: position.at)
        .restore_snapshot_fn(lambda position, states: seen.append(states))
        .distributed(2)
        .build()
    )
    Attempt(source.supplier, 2).restore(snapshot)
    assert seen == [[0, 301, 2]] * 2


def test_both_snapshot_functions_or_none() -> None:
    half = sources.builder("half", lambda context: None).fill_buffer_fn(print).create_snapshot_fn(print)
    with pytest.raises(ShmjetError, match="both create_snapshot_fn and restore_snapshot_fn"):
        half.build()
    half_sink = sinks.builder("half", lambda context: None).receive_fn(print).restore_snapshot_fn(print)
    with pytest.raises(ShmjetError, match="both create_snapshot_fn and restore_snapshot_fn"):
        half_sink.build()


def journalled(journal: list[str], *, snapshots: bool = False) -> Any:
    builder = (
        sinks.builder("sink", lambda context: journal)
        .receive_fn(lambda lines, item: lines.append(item))
        .flush_fn(lambda lines: lines.append("flush"))
        .commit_fn(lambda lines: lines.append("commit"))
        .abort_fn(lambda lines: lines.append("abort"))
        .destroy_fn(lambda lines: lines.append("destroy"))
    )
    if snapshots:
        builder = builder.create_snapshot_fn(lambda lines: len(lines)).restore_snapshot_fn(
            lambda lines, states: lines.append(f"restore {states}")
        )
    return builder.build().supplier


def feed(attempt: Attempt, *items: Any) -> None:
    from shmjet.core.inbox import Inbox

    inbox = Inbox()
    inbox.fill(list(items))
    while inbox:
        attempt.call(0, attempt.processors[0].process, 0, inbox)


def take_snapshot(attempt: Attempt, success: bool = True) -> Snapshot:
    snapshot = Snapshot({0: attempt.save(0)}, (), 1)
    attempt.prepare(0)
    attempt.finish(0, success)
    return snapshot


def test_a_built_sink_commits_in_phase_two_and_at_the_end_if_something_came() -> None:
    journal: list[str] = []
    attempt = Attempt(journalled(journal), 1)
    feed(attempt, "a")
    take_snapshot(attempt)
    take_snapshot(attempt)
    feed(attempt, "b")
    take_snapshot(attempt, success=False)
    take_snapshot(attempt)
    feed(attempt, "c")
    attempt.complete(0)
    attempt.end()
    assert journal == ["a", "flush", "commit", "b", "flush", "commit", "c", "flush", "commit", "destroy"]


def test_a_job_that_fails_aborts_only_what_was_not_committed() -> None:
    journal: list[str] = []
    attempt = Attempt(journalled(journal), 1)
    feed(attempt, "a")
    take_snapshot(attempt)
    attempt.end(ValueError())
    assert journal == ["a", "flush", "commit", "destroy"]


def test_what_a_snapshot_has_is_not_aborted_but_restored() -> None:
    journal: list[str] = []
    attempt = Attempt(journalled(journal, snapshots=True), 1)
    feed(attempt, "a")
    snapshot = Snapshot({0: attempt.save(0)}, (), 1)
    attempt.prepare(0)
    attempt.end(ValueError())
    assert journal == ["a", "flush", "destroy"]
    again = Attempt(journalled(journal, snapshots=True), 1)
    again.restore(snapshot)
    assert journal[3:] == ["restore [2]"]
    with pytest.raises(ProcessorError, match="there is no restore_snapshot_fn"):
        Attempt(journalled(journal), 1).restore(snapshot)
