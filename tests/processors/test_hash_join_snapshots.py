"""The build side of a hash join of batches in snapshots: broadcast, partitioned or by place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shmjet import Batch, ProcessorError
from shmjet.columns.partition_order import batch_pieces
from shmjet.core import BroadcastKey
from shmjet.core.state_placement import StatePlacement
from shmjet.data.column_keys import hash_rows
from shmjet.processors import hash_join_batches
from shmjet.testing import verify_processor
from tests.examples import examples

from .restoring import Stage

BROADCAST = StatePlacement(271, is_partitioned=False, broadcast=frozenset([1]))
PARTITIONED = StatePlacement(13, ("a",))
KEYS = st.integers(0, 5) | st.none() | st.sampled_from([0.5, float("nan"), -0.0])
SIDES = st.lists(st.lists(KEYS, min_size=1, max_size=6), max_size=4)
HOWS = ["inner", "left", "semi", "anti", "right", "outer"]


def stream(keys: Sequence[Sequence[Any]]) -> list[Batch]:
    return [Batch({"a": list(own), "n": list(range(len(own)))}) for own in keys]


def build(keys: Sequence[Sequence[Any]]) -> list[Batch]:
    return [Batch({"b": list(own), "name": [f"{at}.{i}" for i in range(len(own))]}) for at, own in enumerate(keys)]


def rows_of(output: Sequence[Batch]) -> list[str]:
    return sorted(repr(row) for batch in output for row in batch.rows())


class Join(Stage):
    """A join whose edges deal what comes as its placement says."""

    def take(self, batches: Sequence[Batch], ordinal: int) -> None:
        """Bring batches on an edge."""
        processors = len(self.processors)
        for at, batch in enumerate(batches):
            if self.placement is not None and self.placement.is_partitioned:
                owners = hash_rows(batch, ["b" if ordinal else "a"]) % self.partitions % processors
            elif ordinal:
                for index in range(processors):
                    self.feed(index, [batch], ordinal)
                continue
            else:
                owners = np.full(batch.num_rows, at % processors)
            for index in range(processors):
                own = batch.filter(owners == index)
                self.feed(index, [own] if own.num_rows else [], ordinal)


def restored(join: Join, count: int, is_built: bool) -> Join:
    """Lose a join and restore it; the end of an edge that had ended comes again."""
    entries = join.save()
    other = Join(join.supplier, count, join.placement, overdue_after=2)
    other.restore(entries)
    other.output += join.output
    join.close()
    if is_built:
        other.end_edge(1)
    return other


@examples(60)
@given(SIDES, SIDES, st.sampled_from(HOWS), st.sampled_from([BROADCAST, PARTITIONED]), st.integers(0, 4), st.data())
def test_a_restored_join_gives_what_one_without_a_snapshot_gives(
    left: list[list[Any]], right: list[list[Any]], how: str, placement: StatePlacement, cut: int, data: st.DataObject
) -> None:
    assume(placement is PARTITIONED or how not in ("right", "outer"))
    schema = {"a": float, "n": int}
    supplier = hash_join_batches(
        {"a": "b"}, how=how, build_schema={"b": float, "name": str}, stream_schema=schema, batch_rows=2
    )
    plain = Join(supplier, 1, placement)
    plain.take(build(right), 1)
    plain.end_edge(1)
    plain.take(stream(left), 0)
    plain.end_edge(0)
    plain.complete()
    join, counts = Join(supplier, 2, placement), st.integers(1, 4)
    join.take(build(right)[:cut], 1)
    join = restored(join, data.draw(counts), False)
    join.take(build(right)[cut:], 1)
    join.end_edge(1)
    join = restored(join, data.draw(counts), True)
    join.take(stream(left)[:cut], 0)
    join = restored(restored(join, data.draw(counts), True), data.draw(counts), True)
    join.take(stream(left)[cut:], 0)
    join.end_edge(0)
    join.complete(data.draw(st.integers(0, 3)))  # some of what met nothing, perhaps
    join = restored(join, data.draw(counts), True)
    join.complete()
    assert rows_of(join.output) == rows_of(plain.output)


def test_a_broadcast_build_side_is_saved_once() -> None:
    join = Join(hash_join_batches({"a": "b"}), 3, BROADCAST)
    join.take(build([[1, 2], [3]]), 1)
    join.end_edge(1)
    rows = [value for key, value in join.save() if isinstance(key, BroadcastKey) and isinstance(value, Batch)]
    assert sum(batch.num_rows for batch in rows) == 3


def test_rows_of_the_build_side_keep_their_order() -> None:
    join = Join(hash_join_batches({"a": "b"}), 2, PARTITIONED)
    join.take(build([[1, 2, 1], [2, 1, 2]]), 1)
    join.end_edge(1)
    join = restored(join, 3, True)
    join.take(stream([[1, 2]]), 0)
    names = [(row["a"], row["name"]) for batch in join.output for row in batch.rows()]
    assert [name for key, name in names if key == 1] == ["0.0", "0.2", "1.1"]
    assert [name for key, name in names if key == 2] == ["0.1", "1.0", "1.2"]


def test_the_columns_of_an_empty_build_side_are_saved() -> None:
    join = Join(hash_join_batches({"a": "b"}, how="left"), 2, PARTITIONED)
    join.take([Batch({"b": [1], "name": ["x"]})], 1)
    join = restored(join, 2, False)
    join.end_edge(1)
    join.take(stream([[5, 6, 7, 8]]), 0)
    assert {str(batch.schema["name"]) for batch in join.output} == {"text"}


def test_a_table_is_ready_only_where_all_processors_had_their_rows() -> None:
    join = Join(hash_join_batches({"a": "b"}), 2, PARTITIONED)
    while not join.call(0, join.processors[0].complete_edge, 1):
        pass
    join = restored(join, 2, False)
    join.take(build([[1, 2, 3]]), 1)  # still welcome
    join.end_edge(1)
    join.take(stream([[1, 2, 3]]), 0)
    assert len(rows_of(join.output)) == 3


def test_other_partitions_are_refused() -> None:
    join = Join(hash_join_batches({"a": "b"}), 2, PARTITIONED)
    join.take(build([[1, 2, 3]]), 1)
    with pytest.raises(ProcessorError, match=r"hash_join_batches was saved for 13 partitions by \['b'\]"):
        join.restored(2, StatePlacement(14, ("a",)))


def test_rows_without_partitions_go_by_place() -> None:
    join = Join(hash_join_batches({"a": "b"}, how="semi"), 3, StatePlacement(271, is_partitioned=False))
    for index in range(3):
        join.feed(index, build([[index]]), 1)
    join = restored(join, 3, False)
    join.end_edge(1)
    for index in range(3):
        join.feed(index, stream([[0, 1, 2]]), 0)
    assert rows_of(join.output) == ["{'a': 0, 'n': 0}", "{'a': 1, 'n': 1}", "{'a': 2, 'n': 2}"]


def test_a_batch_is_split_by_partition_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.columns.partition_order.PIECE_ROWS", 100)
    batch = Batch({"k": np.arange(1000) % 50, "at": np.arange(1000)})
    found = [piece for piece in batch_pieces(batch, lambda rows: hash_rows(rows, ["k"]) % np.uint32(7), 7) if piece]
    assert max(piece.num_rows for piece in found) <= 100
    assert sorted(at for piece in found for at in piece["at"].tolist()) == list(range(1000))
    for piece in found:
        assert len(set((hash_rows(piece, ["k"]) % 7).tolist())) == 1
        assert (np.diff(piece["at"]) > 0).all()


@pytest.mark.parametrize("how", HOWS)
def test_a_join_passes_all_modes(how: str) -> None:
    both = [{"a": 1, "n": 0, "name": "0.0"}, {"a": 1, "n": 0, "name": "1.0"}, {"a": 3, "n": 2, "name": "1.1"}]
    expected: dict[str, list[dict[str, Any]]] = {
        "inner": both,
        "left": [*both, {"a": 2, "n": 1, "name": None}],
        "semi": [{"a": 1, "n": 0}, {"a": 3, "n": 2}],
        "anti": [{"a": 2, "n": 1}],
        "right": [*both, {"a": 4, "n": None, "name": "1.2"}],
        "outer": [*both, {"a": 2, "n": 1, "name": None}, {"a": 4, "n": None, "name": "1.2"}],
    }
    rows = expected[how]
    batch = Batch({name: [row[name] for row in rows] for name in rows[0]})
    check = verify_processor(hash_join_batches({"a": "b"}, how=how)).inputs(
        stream([[1, 2, 3]]), build([[1], [1, 3, 4]])
    )
    check.priorities(0, -1).any_order().expect([batch])


@pytest.mark.parametrize("how", ["right", "outer"])
def test_unmatched_rows_of_a_broadcast_edge_are_refused(how: str) -> None:
    with pytest.raises(ProcessorError, match="partition both edges by their key columns"):
        Join(hash_join_batches({"a": "b"}, how=how), 2, BROADCAST)
    join = Join(hash_join_batches({"a": "b"}, how=how), 1, BROADCAST)
    join.take(build([[1, 2]]), 1)
    join.end_edge(1)
    join.take(stream([[2]]), 0)
    assert rows_of(join.complete()) == [
        "{'a': 1, 'n': None, 'name': '0.0'}",
        "{'a': 2, 'n': 0, 'name': '0.1'}",
    ]
