"""Groups in snapshots: saved by partition, restored into any number of processors, in the order that they had."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, ProcessorError
from shmjet.columns import count, first, last, max_, mean, min_, sum_, var
from shmjet.columns.group_export import slices
from shmjet.columns.groups import Groups
from shmjet.core import BroadcastKey
from shmjet.core.state_placement import NullKey, StatePlacement
from shmjet.data.column_keys import hash_rows
from shmjet.processors import group_by
from shmjet.testing import verify_processor
from tests.examples import examples

from .restoring import Stage

EVERYTHING = {
    "n": count(),
    "values": count("v"),
    "total": sum_("v"),
    "least": min_("v"),
    "most": max_("v"),
    "average": mean("v"),
    "spread": var("v"),
    "first": first("v"),
    "last": last("v"),
}
FLOATS = st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324])
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TEXTS = st.text(max_size=20) | st.sampled_from(["", "a", "ab\0", "x" * 13, "é" * 30])
DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
VALUES: list[st.SearchStrategy[Any]] = [FLOATS, INTEGERS, TEXTS, DATES, st.booleans(), st.binary(max_size=20)]
KEYS = [INTEGERS, FLOATS, TEXTS, DATES, st.booleans(), st.binary(max_size=14), st.integers(0, 3)]


def columns(kinds: Sequence[st.SearchStrategy[Any]], rows: int) -> st.SearchStrategy[list[list[Any]]]:
    return st.tuples(*(st.lists(st.none() | kind, min_size=rows, max_size=rows) for kind in kinds)).map(list)


def bits(value: Any) -> Any:
    """Return a value so that equal ones are the same to the last bit."""
    return struct.pack("<d", value) if isinstance(value, float) and not math.isnan(value) else repr(value)


def rows_of(output: Sequence[Batch]) -> list[Any]:
    return [{name: bits(value) for name, value in row.items()} for batch in output for row in batch.rows()]


def numbers_of(aggregates: dict[str, Any], kind: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Leave out what a column of this kind has not."""
    if kind in (FLOATS, INTEGERS) or kind is VALUES[4]:
        return aggregates
    return {name: each for name, each in aggregates.items() if each.function not in ("sum", "mean", "var")}


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Batch], tuple[str, ...], dict[str, Any]]:
    """Batches with one to three key columns and a column of values, with nulls and everything awkward."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    kind = draw(st.sampled_from(VALUES))
    names = tuple(f"k{place}" for place in range(len(kinds)))
    batches = []
    for rows in draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)):
        data = draw(columns([*kinds, kind], rows))
        batches.append(Batch(dict(zip([*names, "v"], data, strict=True))))
    return batches, names, numbers_of(EVERYTHING, kind)


# -- one processor: exactly the same, in the same order ----------------------------------------------------------------


@examples(60)
@given(streams(), st.integers(0, 4), st.integers(1, 3))
def test_a_restored_processor_goes_on_to_the_bit(
    stream: tuple[list[Batch], tuple[str, ...], dict[str, Any]], cut: int, overdue_after: int
) -> None:
    batches, keys, aggregates = stream
    supplier = group_by(*keys).agg(**aggregates)
    plain, stage = Stage(supplier), Stage(supplier, overdue_after=overdue_after)
    try:
        plain.feed(0, batches)
        expected = plain.complete()
    except Exception as error:
        with pytest.raises(type(error)):
            crash(stage, batches, cut)
        return
    found = crash(stage, batches, cut)
    assert [batch.schema for batch in found] == [batch.schema for batch in expected]
    assert rows_of(found) == rows_of(expected)


def crash(stage: Stage, batches: list[Batch], cut: int) -> list[Any]:
    stage.feed(0, batches[:cut])
    stage = stage.restored().restored()
    stage.feed(0, batches[cut:])
    return stage.restored().complete()


@pytest.mark.parametrize("calls", range(4))
def test_what_has_been_emitted_is_not_saved(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.grouping.EMITTED_ROWS", 3)
    stage = Stage(group_by("k").agg(n=count(), total=sum_("v")), room=1)
    stage.feed(0, [Batch({"k": range(10), "v": range(10)}), Batch({"k": range(5, 15), "v": range(10)})])
    stage.complete(calls)
    before = len(stage.output)
    entries = stage.save()
    saved = sum(value[1].num_rows for key, value in entries if not isinstance(key, BroadcastKey))
    emitted = sum(batch.num_rows for batch in stage.output)
    assert saved + emitted == 15
    assert len(stage.output) - before <= 1
    found = stage.restored().complete()
    assert [row for batch in found for row in batch.tuples()] == [
        (k, 2 if 5 <= k < 10 else 1, k * (k < 10) + (k - 5) * (k >= 5)) for k in range(15)
    ]


def test_a_mixed_column_stays_what_it_is() -> None:
    stage = Stage(group_by("k").agg(least=min_("v"), most=max_("v"), last=last("v")))
    big = Batch({"k": [1, 2], "v": np.array([2**63 + 1, 5], np.uint64)})
    stage.feed(0, [big])
    stage = stage.restored()
    stage.feed(0, [Batch({"k": [2], "v": [0.5]}), Batch({"k": [2], "v": [7]})])
    with pytest.raises(Exception, match="9223372036854775809"):
        stage.restored().complete()


def test_rows_that_wait_for_a_batch_are_saved() -> None:
    stage = Stage(group_by("k", item_columns=("k", "v")).agg(total=sum_("v")))
    stage.feed(0, [("a", 1), ("b", 2), ("a", 3)])
    assert [batch.to_dict() for batch in stage.restored().complete()] == [{"k": ["a", "b"], "total": [4, 2]}]


def test_the_columns_are_saved_without_any_row() -> None:
    totals = group_by("k").agg(total=sum_("v"))
    stage = Stage(totals, 3)
    stage.feed(0, [Batch({"k": ["a"], "v": [0.5]})])
    stage = stage.restored()
    for index in range(3):  # whose own rows are null alone
        stage.feed(index, [Batch({"k": [f"x{index}"], "v": [None]})])
    assert {str(batch.schema["total"]) for batch in stage.complete()} == {"float64"}


def test_all_modes_keep_the_order_of_groups() -> None:
    batches = [Batch({"k": ["b", "a", None], "v": [1, 2, 3]}), Batch({"k": ["c", "a"], "v": [4, 5]})]
    expected = Batch({"k": ["b", "a", None, "c"], "total": [1, 7, 3, 4]})
    verify_processor(group_by("k").agg(total=sum_("v"))).inputs(batches).expect([expected])


# -- several processors ------------------------------------------------------------------------------------------------


def dealt(stage: Stage, batch: Batch, names: Sequence[str]) -> None:
    """Give each processor the rows of its partitions, as a partitioned edge does."""
    partitioner = stage.placement and stage.placement.partitioner
    if partitioner is not None:
        owners = np.array([partitioner(key, stage.partitions) for (key,) in batch.select(*names).tuples()], np.uint32)
    else:
        owners = hash_rows(batch, names) % stage.partitions
    for index in range(len(stage.processors)):
        own = batch.filter(owners % len(stage.processors) == index)
        stage.feed(index, [own] if own.num_rows else [])


@examples(40)
@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_groups_come_to_the_owners_of_their_keys(data: st.DataObject, counts: list[int]) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    names = tuple(f"k{place}" for place in range(len(kinds)))
    partitioned_by = data.draw(st.sampled_from([names, names[-1:]]))
    placement = StatePlacement(data.draw(st.sampled_from([1, 4, 271])), partitioned_by)
    supplier = group_by(*names).agg(n=count(), total=sum_("v"))
    stage, one = Stage(supplier, counts[0], placement), Stage(supplier)
    for processors in counts:
        drawn = data.draw(columns([*kinds, st.integers(-5, 5)], data.draw(st.integers(0, 8))))
        batch = Batch(dict(zip([*names, "v"], drawn, strict=True)))
        try:
            one.feed(0, [batch])
            one_more = True
        except Exception:
            one_more = False  # of another kind than the batches before
        if not one_more:
            return
        stage = stage.restored(processors)
        dealt(stage, batch, partitioned_by)
    found, expected = stage.restored(counts[-1]).complete(), one.complete()
    assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(expected)))


def by_length(key: str, count: int) -> int:
    return len(key) % count


def test_a_partitioner_of_the_edge_deals_groups_too() -> None:
    placement = StatePlacement(7, ("k",), by_length)
    stage = Stage(group_by("k").agg(n=count()), 3, placement)
    batch = Batch({"k": [chr(97 + i) * (i % 9) for i in range(40)]})
    dealt(stage, batch, ("k",))
    stage = stage.restored(2)
    dealt(stage, batch, ("k",))
    found = {k: n for each in stage.restored(4).complete() for k, n in each.tuples()}
    assert found == {k: 2 * batch["k"].tolist().count(k) for k in batch["k"].tolist()}


def test_a_null_key_has_a_partition_of_its_own() -> None:
    stage = Stage(group_by("k").agg(n=count()), 1, StatePlacement(271, ("k",)))
    stage.feed(0, [Batch({"k": [None, None]})])
    assert len({NullKey(), NullKey()}) == 1
    assert [batch.to_dict() for batch in stage.restored(3).complete()] == [{"k": [None], "n": [2]}]


@pytest.mark.parametrize("now", [StatePlacement(100, ("k",)), StatePlacement(271, ("j",)), StatePlacement(271, ("z",))])
def test_other_partitions_are_refused(now: StatePlacement) -> None:
    stage = Stage(group_by("k", "j").agg(n=count()), 2, StatePlacement(271, ("k",)))
    stage.feed(0, [Batch({"k": [1, 2], "j": [1, 2]})])
    with pytest.raises(ProcessorError, match=r"saved for 271 partitions by \['k'\], and this job has"):
        stage.restored(2, now)
    assert sum(batch.num_rows for batch in stage.restored(1, now).complete()) == 2


def test_without_a_partitioned_edge_groups_go_by_place() -> None:
    placement = StatePlacement(271, is_partitioned=False)
    stage = Stage(group_by("k").agg(n=count()), 4, placement)
    for index in range(4):
        stage.feed(index, [Batch({"k": [index, 9]})])
    same = stage.restored()
    assert [batch.to_dict()["k"] for batch in same.complete()] == [[0, 9], [1, 9], [2, 9], [3, 9]]
    again = same.restored()
    assert not again.complete()[4:]
    for index in range(4):
        again.feed(index, [Batch({"k": [index, 9]})])
    fewer = again.restored(2)
    assert [batch.to_dict() for batch in fewer.complete()[4:]] == [
        {"k": [0, 9, 2], "n": [1, 2, 1]},
        {"k": [1, 9, 3], "n": [1, 2, 1]},
    ]


@pytest.mark.parametrize("receiver", range(3))
def test_one_group_of_everything_goes_to_the_processor_that_receives(receiver: int) -> None:
    placement = StatePlacement(271, is_partitioned=False, is_to_one=True)
    stage = Stage(group_by().agg(total=sum_("v")), 1, placement)
    stage.feed(0, [Batch({"v": [1, 2]})])
    stage = stage.restored(3, receives=[index == receiver for index in range(3)])
    stage.feed(receiver, [Batch({"v": [3]})])
    assert [batch.to_dict() for batch in stage.complete()] == [{"total": [6]}]


# -- two stages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(5))
def test_a_first_stage_emits_its_states_before_the_barrier(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.grouping.EMITTED_ROWS", 2)
    grouping = group_by("k").agg(total=sum_("v"), least=min_("v"))
    accumulate, combine = Stage(grouping.accumulate, 2, room=1), Stage(grouping.combine)
    for index in range(2):
        accumulate.feed(index, [Batch({"k": range(5), "v": range(index, index + 5)})])
    accumulate.complete(calls)
    assert accumulate.save() == []
    combine.feed(0, accumulate.output)
    combine = combine.restored()
    accumulate = Stage(grouping.accumulate, 2, room=1)
    if not calls:
        accumulate.feed(1, [Batch({"k": [4, 5], "v": [10, 10]})])
    combine.feed(0, accumulate.complete())
    more = {4: 10, 5: 10} if not calls else {}
    found = {k: (total, least) for batch in combine.restored().complete() for k, total, least in batch.tuples()}
    expected = {k: (2 * k + 1 + more.get(k, 0), k) for k in range(5)} | ({5: (10, 10)} if more else {})
    assert found == expected


def test_both_stages_pass_all_modes() -> None:
    grouping = group_by("k").agg(total=sum_("v"), n=count())
    states = [Batch({"k": ["a", "b"], "total#low": [1, 2], "total#high": [0, 0], "n#n": [1, 1]})] * 3
    expected = Batch({"k": ["a", "b"], "total": [3, 6], "n": [3, 3]})
    verify_processor(grouping.combine).inputs(states).expect([expected])


# -- the form ----------------------------------------------------------------------------------------------------------


def test_slices_are_in_order_and_bounded() -> None:
    groups = Groups(["k"], {"total": sum_("v")})
    groups.add(Batch({"k": np.arange(20_000), "v": np.arange(20_000)}))
    found = list(slices(groups, 100))
    assert [piece.states.num_rows for piece in found] == [7356, 7356, 5188]
    for piece in found:
        assert piece.states["k"].tolist() == [position + 100 for position in piece.positions]
    assert [piece.states.num_rows for piece in slices(groups, 19_990)] == [10]


def test_a_piece_of_large_texts_has_few_groups() -> None:
    groups = Groups(["k"], {"text": first("v")})
    groups.add(Batch({"k": range(40), "v": ["x" * 100_000] * 40}))
    found = list(slices(groups))
    assert len(found) >= 8
    assert sum(piece.states.num_rows for piece in found) == 40


def test_an_arranged_table_is_read_and_widened_in_its_order() -> None:
    groups = Groups(["k"], {"v": last("v")})
    groups.add(Batch({"k": [10, 20, 30], "v": [1, 2, 3]}))
    groups.arrange(np.array([2, 0, 1], np.uint32))
    groups.add(Batch({"k": [40, 10], "v": [4, 5]}))
    assert groups.results(0, 10)[0].to_dict() == {"k": [30, 10, 20, 40], "v": [3, 5, 2, 4]}
    assert groups.results(2, 10)[0].to_dict() == {"k": [20, 40], "v": [2, 4]}
    assert groups.results(3, 1)[0].to_dict() == {"k": [40], "v": [4]}
    assert groups.states_at(np.array([3, 1], np.uint32))["k"].tolist() == [40, 10]
    groups.add(Batch({"k": [0.5], "v": [9]}))
    assert groups.results(0, 10)[0].to_dict() == {"k": [30, 10, 20, 40, 0.5], "v": [3, 5, 2, 4, 9]}
