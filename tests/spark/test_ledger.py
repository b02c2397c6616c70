"""The commit coordinator, driven by hand and by hypothesis."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from shmjet.spark.errors import SparkError
from shmjet.spark.ledger import Attempt, Ledger
from shmjet.spark.protocol import Content, Mode, Receipt, Record


def record(number: int, rows: int = 10, checksum: int = 0) -> Record:
    return Record(Content.ARROW, checksum, number, rows, 100, 100, 0, 64)


def opened(mode: Mode, partitions: int = 4) -> Ledger[str]:
    ledger: Ledger[str] = Ledger()
    assert ledger.open_round(0, partitions, mode)
    return ledger


def sent(ledger: Ledger[str], partition: int, number: int, records: int, **fields: int) -> Attempt[str]:
    attempt = ledger.begin(0, partition, number)
    for n in range(records):
        ledger.add(attempt, f"{partition}/{number}/{n}", [record(n, **fields)])
    return attempt


def test_the_first_attempt_that_ends_wins_and_a_later_one_is_told_so() -> None:
    ledger = opened(Mode.PARTITION)
    one, two = sent(ledger, 0, 7, 2), sent(ledger, 0, 8, 2)
    assert ledger.winner(one) is None
    assert ledger.end(two, 2, 20) == (Receipt(0, 8, 2, 20), True)
    assert ledger.winner(one) == Receipt(0, 8, 2, 20)
    assert ledger.end(one, 2, 20) == (Receipt(0, 8, 2, 20), False)


def test_an_end_whose_counts_are_not_those_that_arrived_is_an_error() -> None:
    ledger = opened(Mode.PARTITION)
    with pytest.raises(SparkError, match=r"says that it sent 30 rows in 3 frames; what arrived is 20 in 2"):
        ledger.end(sent(ledger, 1, 5, 2), 3, 30)


def test_a_missing_record_is_an_error() -> None:
    ledger = opened(Mode.PARTITION)
    attempt = ledger.begin(0, 0, 1)
    with pytest.raises(SparkError, match="sent record 1 after 0 others"):
        ledger.add(attempt, "extent", [record(1)])


def test_the_receipts_of_the_job_are_held_against_what_was_shown() -> None:
    ledger = opened(Mode.PARTITION, partitions=1)
    winner, _ = ledger.end(sent(ledger, 0, 7, 1), 1, 10)
    with pytest.raises(SparkError, match="the attempt 9 won"):
        ledger.close_round(0, [Receipt(0, 9, 1, 10)])
    assert ledger.close_round(0, [winner]) == ([], [])
    assert ledger.last_closed == 0


def test_a_partition_without_a_receipt_is_an_error() -> None:
    ledger = opened(Mode.PARTITION, partitions=2)
    winner, _ = ledger.end(sent(ledger, 0, 7, 1), 1, 10)
    with pytest.raises(SparkError, match="without a receipt for partition 1"):
        ledger.close_round(0, [winner])


def test_indeterminate_data_is_shown_as_the_receipts_say() -> None:
    ledger = opened(Mode.ROUND, partitions=1)
    early, late = sent(ledger, 0, 1, 1), sent(ledger, 0, 2, 2)
    assert ledger.end(early, 1, 10) == (early.receipt, False)
    assert ledger.end(late, 2, 20) == (late.receipt, False)
    assert ledger.close_round(0, [late.receipt]) == ([late], [early])


def test_a_closed_round_is_not_opened_again_and_takes_no_attempts() -> None:
    ledger = opened(Mode.ROUND, partitions=1)
    attempt = sent(ledger, 0, 1, 1)
    ledger.end(attempt, 1, 10)
    ledger.close_round(0, [attempt.receipt])
    assert not ledger.open_round(0, 1, Mode.ROUND)
    with pytest.raises(SparkError, match="round 0 of Spark's data is not open"):
        ledger.begin(0, 0, 2)
    assert ledger.open_round(1, 1, Mode.ROUND)


def test_a_round_that_failed_leaves_nothing_and_may_come_again() -> None:
    ledger = opened(Mode.ROUND, partitions=2)
    attempt = sent(ledger, 0, 1, 1)
    ledger.end(attempt, 1, 10)
    assert ledger.give_up_round(0) == [attempt]
    assert ledger.open_round(0, 2, Mode.ROUND)


def test_a_stream_shows_each_record_once() -> None:
    ledger = opened(Mode.STREAM)
    one = ledger.begin(0, 0, 1)
    assert len(ledger.add(one, "a", [record(0), record(1)])) == 2
    two = ledger.begin(0, 0, 2)
    assert [r.number for r in ledger.add(two, "b", [record(0), record(1), record(2)])] == [2]
    assert ledger.end(two, 3, 30) == (Receipt(0, 2, 3, 30), True)


@pytest.mark.parametrize(
    ("again", "count"), [({"checksum": 5}, 2), ({"rows": 9}, 2), ({}, 1), ({}, 3)], ids=["crc", "rows", "fewer", "more"]
)
def test_a_stream_that_gives_other_rows_says_how_to_mend_it(again: dict[str, int], count: int) -> None:
    ledger = opened(Mode.STREAM)
    one = sent(ledger, 0, 1, 2)
    ledger.end(one, 2, 20) if count > 2 else None
    with pytest.raises(SparkError, match=r"partition 0 again, it gave other rows .* persist\(\)"):
        two = sent(ledger, 0, 2, count, **again)
        ledger.end(two, two.frames, two.rows)


@given(st.sampled_from(Mode), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.integers(0, 2**32))
def test_however_attempts_interleave_each_row_is_shown_once(mode: Mode, sizes: list[int], seed: int) -> None:
    """Attempts of three partitions run at once, die at any moment and come again, in each mode."""
    chance = random.Random(seed)
    ledger = opened(mode, partitions=3)
    shown: list[tuple[int, Any]] = []
    running: dict[int, tuple[Attempt[Any], int]] = {}
    receipts: dict[int, Receipt] = {}
    numbers = itertools.count(1)
    while len(receipts) < 3:
        missing = [p for p in range(3) if p not in receipts]
        if not running or chance.random() < 0.3:
            attempt = ledger.begin(0, chance.choice(missing), next(numbers))
            running[attempt.number] = attempt, 0
        number = chance.choice(sorted(running))
        attempt, done = running.pop(number)
        partition = attempt.partition
        if chance.random() < 0.1:
            continue  # killed
        if done < sizes[partition]:
            fresh = ledger.add(attempt, done, [record(done)])
            shown += [(partition, new.number) for new in fresh]
            running[number] = attempt, done + 1
            continue
        winner, visible = ledger.end(attempt, done, 10 * done)
        if visible:
            shown += [(partition, extent) for extent in attempt.extents]
        receipts.setdefault(partition, winner)
    for attempt in ledger.close_round(0, list(receipts.values()))[0]:
        shown += [(attempt.partition, extent) for extent in attempt.extents]
    assert sorted(shown) == [(p, n) for p in range(3) for n in range(sizes[p])]
