"""The state machine of one snapshot, step by step and in random stories."""

from __future__ import annotations

import random

import pytest

from shmjet.cluster.jobs.snapshot import PERIODIC, Place, SnapshotPhase, SnapshotProgress, SnapshotRequest
from shmjet.cluster.membership.peer_messages import ResolvePart, SavePart
from shmjet.execution.messages import SavedProcessor
from shmjet.snapshots.manifest import Piece
from tests.examples import seeds

PLACES: list[Place] = [("a", 0, 0), ("a", 1, 0), ("b", 0, 0), ("b", 1, 0)]


def saved(place: Place, *, finished: bool = False, file: str = "1.chunk") -> SavedProcessor:
    return SavedProcessor(place[1], place[2], finished, [Piece(0, file, 16, 40, 7, 1)])


def begun(request: SnapshotRequest = PERIODIC, finished: tuple[Place, ...] = ()) -> SnapshotProgress:
    ended = {place: saved(place, finished=True, file="0.chunk") for place in finished}
    progress = SnapshotProgress(7, 3, request, "lineage", PLACES, ended)
    save = SavePart(7, 3, request.terminal, request.prepares, "lineage")
    assert progress.take_orders() == [("a", save), ("b", save)]
    return progress


def save_all(progress: SnapshotProgress, error: str | None = None) -> None:
    for place in PLACES:
        progress.saved(place[0], [saved(place)], error)


def test_both_phases_wait_for_every_processor() -> None:
    progress = begun()
    for place in PLACES[:-1]:
        progress.saved(place[0], [saved(place)])
    assert progress.phase is SnapshotPhase.SAVING
    assert progress.awaited == [PLACES[-1]]
    assert not progress.take_orders()
    progress.saved("b", [saved(PLACES[-1])])
    assert progress.phase is SnapshotPhase.WRITING
    assert set(progress.records) == set(PLACES)
    assert not progress.take_orders()
    assert not progress.is_valid
    progress.written()
    assert progress.is_valid
    assert progress.take_orders() == [("a", ResolvePart(7, 3, True)), ("b", ResolvePart(7, 3, True))]
    progress.resolved("a", [(0, 0), (1, 0)])
    assert progress.awaited == [("b", 0, 0), ("b", 1, 0)]
    progress.resolved("b", [(0, 0), (1, 0)])
    assert progress.phase is SnapshotPhase.OVER


def test_an_error_lets_all_save_and_is_resolved_without_success() -> None:
    progress = begun()
    progress.saved("a", [], "the disk is full")
    assert progress.phase is SnapshotPhase.SAVING
    save_all(progress, "another error")
    assert progress.error == "the disk is full"
    assert progress.take_orders() == [("a", ResolvePart(7, 3, False)), ("b", ResolvePart(7, 3, False))]
    for member in "ab":
        progress.resolved(member, [(0, 0), (1, 0)])
    assert progress.phase is SnapshotPhase.OVER
    assert not progress.is_valid


def test_a_manifest_that_cannot_be_written_is_an_error_as_well() -> None:
    progress = begun()
    save_all(progress)
    progress.written("no space left on device")
    assert progress.take_orders()[0] == ("a", ResolvePart(7, 3, False))
    assert not progress.is_valid


def test_a_processor_that_has_ended_is_not_waited_for() -> None:
    progress = begun(finished=(("a", 0, 0),))
    assert progress.awaited == PLACES[1:]
    progress.saved("b", [saved(("b", 0, 0), finished=True)])
    progress.saved("a", [saved(("a", 1, 0))])
    progress.saved("b", [saved(("b", 1, 0))])
    progress.written()
    assert progress.awaited == [("a", 1, 0), ("b", 1, 0)]
    assert progress.records["a", 0, 0].pieces[0].file == "0.chunk"
    progress.resolved("a", [(1, 0)])
    progress.saved("b", [saved(("b", 1, 0), finished=True, file="2.chunk")])  # it has ended instead
    assert progress.phase is SnapshotPhase.OVER
    assert progress.records["b", 1, 0].pieces[0].file == "1.chunk"


def test_a_snapshot_of_what_has_ended_needs_no_phase_two() -> None:
    progress = begun(finished=tuple(PLACES))
    assert progress.phase is SnapshotPhase.WRITING
    progress.written()
    assert progress.phase is SnapshotPhase.OVER


@pytest.mark.parametrize(
    ("terminal", "name", "prepares"), [(False, None, True), (True, None, True), (False, "x", False), (True, "x", True)]
)
def test_only_an_export_that_leaves_the_job_running_prepares_nothing(
    terminal: bool, name: str | None, prepares: bool
) -> None:
    assert SnapshotRequest(terminal=terminal, name=name).prepares is prepares


@pytest.mark.parametrize("seed", seeds(300))
def test_random_stories_come_to_their_end(seed: int) -> None:
    chance = random.Random(seed)
    places = [
        (member, vertex, processor)
        for member in "abc"[: chance.randint(1, 3)]
        for vertex in range(chance.randint(1, 3))
        for processor in range(chance.randint(1, 3))
    ]
    ended = {place: saved(place, finished=True) for place in places if chance.random() < 0.2}
    progress = SnapshotProgress(7, 3, PERIODIC, "lineage", places, ended)
    fails = chance.random() < 0.3
    to_save = [place for place in places if place not in ended]
    live: set[Place] = set()
    told: dict[str, list[object]] = {member: [] for member, _, _ in places}

    def take() -> None:
        for member, order in progress.take_orders():
            told[member].append(order)

    take()
    while to_save:
        assert progress.phase is SnapshotPhase.SAVING
        place = to_save.pop(chance.randrange(len(to_save)))
        finished = chance.random() < 0.2
        error = "no room" if fails and (not to_save or chance.random() < 0.3) else None
        progress.saved(place[0], [saved(place, finished=finished)], error)
        fails = fails and error is None
        if not finished:
            live.add(place)
        if chance.random() < 0.1:  # the same once more means nothing
            progress.saved(place[0], [saved(place, finished=finished)])
        take()
    failed = progress.error is not None
    if not failed:
        assert progress.phase is SnapshotPhase.WRITING
        progress.written("no room" if chance.random() < 0.2 else None)
        failed = progress.error is not None
    take()
    while live:
        assert progress.phase is SnapshotPhase.RESOLVING
        assert progress.awaited == sorted(live)
        place = chance.choice(sorted(live))
        live.discard(place)
        if chance.random() < 0.2:
            progress.saved(place[0], [saved(place, finished=True)])
        else:
            progress.resolved(place[0], [place[1:]])
    take()
    assert progress.phase is SnapshotPhase.OVER
    assert progress.is_valid is not failed
    assert set(progress.records) == set(places)
    for orders in told.values():
        assert [type(order) for order in orders] == [SavePart, ResolvePart]
        assert orders[1] == ResolvePart(7, 3, not failed)
