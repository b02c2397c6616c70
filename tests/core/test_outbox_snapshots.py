"""The outbox takes entries for snapshots one by one or in bulk, and refuses where a call has taken long enough."""

from __future__ import annotations

import pytest

from shmjet.core import BroadcastKey, Outbox
from shmjet.data.errors import OutboxError


def saving(overdue=None):
    outbox = Outbox([1])
    outbox.overdue = overdue
    outbox.begin_saving()
    return outbox


def test_entries_are_handed_over_at_the_end_of_a_call():
    outbox = saving()
    assert outbox.offer_to_snapshot("a", None)
    assert outbox.offer_all_to_snapshot(iter([("b", 2), (None, 3)]))
    assert outbox.end_saving(True) == [("a", None), ("b", 2), (None, 3)]
    outbox.begin_saving()
    assert outbox.end_saving(True) == []


def test_they_are_taken_in_save_to_snapshot_only_and_keys_offered_singly_are_not_none():
    outbox = Outbox([1])
    with pytest.raises(OutboxError, match=r"offer_to_snapshot\(\) works in save_to_snapshot\(\) only"):
        outbox.offer_to_snapshot("a", 1)
    with pytest.raises(OutboxError, match=r"offer_all_to_snapshot\(\) works in save_to_snapshot\(\) only"):
        outbox.offer_all_to_snapshot(iter(()))
    outbox.begin_saving()
    with pytest.raises(TypeError, match="None is never the key"):
        outbox.offer_to_snapshot(None, 1)
    assert outbox.offer_to_snapshot(BroadcastKey("all"), 1)


@pytest.mark.parametrize("overdue", [None, lambda: False])
def test_a_call_takes_a_bounded_number_of_entries_and_draws_no_more(overdue):
    entries = iter([(n, n) for n in range(10_000)])
    outbox = saving(overdue)
    assert not outbox.offer_all_to_snapshot(entries)
    first = outbox.end_saving(False)
    assert 1000 <= len(first) < 10_000
    assert next(entries)[0] == len(first)


def test_a_call_that_has_taken_long_enough_takes_few_entries():
    outbox, entries = saving(lambda: True), iter([(n, n) for n in range(1000)])
    assert not outbox.offer_all_to_snapshot(entries)
    few = len(outbox.end_saving(False))
    assert 0 < few < 1000
    outbox.begin_saving()
    singly = 0
    while outbox.offer_to_snapshot(singly, singly):
        singly += 1
    assert singly == few


def test_an_entry_that_was_refused_comes_first():
    outbox, at = saving(lambda: True), 0
    while outbox.offer_to_snapshot(at, at):
        at += 1
    with pytest.raises(OutboxError, match=r"is through, but .* was refused"):
        outbox.end_saving(True)
    outbox = saving(lambda: True)
    at = 0
    while outbox.offer_to_snapshot(at, at):
        at += 1
    outbox.end_saving(False)
    outbox.begin_saving()
    with pytest.raises(OutboxError, match="comes first"):
        outbox.offer_to_snapshot("another", 1)
    assert outbox.offer_to_snapshot(at, at)
