"""Blocks, splitting, receiving and hosting, without Spark."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, ProcessorContext, column, processors
from shmjet.core import partition_id
from shmjet.data.errors import ProcessorError
from shmjet.spark.runner import blocks
from shmjet.spark.runner.blocks import HEAVY, ITEMS, OrderedBlocks, pack, packed, place_of, sized, unpack
from shmjet.spark.runner.exchange_receiver import bounds_of, merged, received
from shmjet.spark.runner.exchange_sender import by_key, by_range, evenly
from shmjet.spark.runner.failures import described, guarded, job_error
from shmjet.spark.runner.processor_host import hosted

FORMAT = Path(__file__).parents[2] / "docs" / "formats" / "blocks.md"


@dataclass(frozen=True)
class Point:
    x: int


@pytest.mark.parametrize("items", [[1, 2], ["a", "ü"], [("a", 1.5)], [{"k": None}], [Point(3)], [[1], {2}], [True]])
def test_a_block_gives_back_equal_items_of_the_same_types(items: list[Any]) -> None:
    found = unpack(pack(items, 3, 70_000, 5))
    assert found == items
    assert list(map(type, found)) == list(map(type, items))
    assert place_of(pack(items, 3, 70_000, 5)) == (3, 70_000, 5)


def test_the_page_on_the_format_says_what_the_code_does() -> None:
    text = FORMAT.read_text()
    sizes = [int(size) for size in re.findall(r"^\| \d+ \| (\d+) \|", text, re.MULTILINE)]
    offsets = [int(at) for at in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert offsets == [sum(sizes[:place]) for place in range(len(sizes) + 1)]
    assert offsets[-1] == blocks.HEAD.size
    assert f"{ITEMS} items" in text
    assert f"{HEAVY >> 20} MiB" in text


def test_lists_become_blocks_of_a_useful_size() -> None:
    assert [len(items) for items in sized([[0]] * 10_000)] == [ITEMS, ITEMS, 10_000 - 2 * ITEMS]
    assert [len(items) for items in sized([list(range(10_000))])] == [ITEMS, ITEMS, 10_000 - 2 * ITEMS]
    heavy = Batch({"v": list(range(HEAVY // 16))})
    assert [len(items) for items in sized([[heavy] * 5])] == [2, 2, 1]
    assert [place_of(block) for block in packed([[1] * (ITEMS + 1)], 2, 9)] == [(2, 9, 0), (2, 9, 1)]


@pytest.mark.parametrize("limit", [1, 200, 1 << 20])
def test_blocks_are_given_back_in_the_order_of_their_places_from_memory_or_a_file(limit: int) -> None:
    places = [(ordinal, source, sequence) for ordinal in range(3) for source in range(4) for sequence in range(5)]
    shuffled = [pack([place], *place) for place in places]
    random.Random(5).shuffle(shuffled)
    rank = {1: 0, 0: 1, 2: 1}
    found = [unpack(block)[0] for block in OrderedBlocks(shuffled, rank.__getitem__, limit)]
    assert found == sorted(places, key=lambda place: (rank[place[0]], place))


@given(
    st.lists(st.lists(st.integers() | st.text(max_size=3) | st.floats(allow_nan=False), max_size=30)), st.integers(1, 5)
)
def test_what_is_split_by_key_arrives_once_in_order_and_where_the_engine_has_it(
    lists: list[list[Any]], targets: int
) -> None:
    found: dict[int, list[bytes]] = {}
    for target, block in by_key(lists, None, 271, targets, 0, 0):
        found.setdefault(target, []).append(block)
    for target, parts in found.items():
        got = [item for _, items in received(reversed(parts), [0]) for item in items]
        assert got == [item for items in lists for item in items if partition_id(item) % targets == target]


def test_batches_are_split_by_rows() -> None:
    batch = Batch({"k": list(range(100)), "v": [f"{n}" for n in range(100)]})
    rows = Counter()
    for target, block in by_key([[batch, batch]], column("k"), 7, 3, 0, 0):
        for part in unpack(block):
            for row in part.rows():
                assert partition_id(row["k"], 7) % 3 == target
                rows[row["v"]] += 1
    assert set(rows.values()) == {2}


def test_dealing_is_even_and_the_same_each_time() -> None:
    once, again = (list(evenly([list(range(10)), [10, 11]], 3, 0, source=1)) for _ in range(2))
    assert once == again
    sizes = Counter()
    for target, block in once:
        sizes[target] += len(unpack(block))
    assert sizes == {0: 4, 1: 4, 2: 4}


@given(st.lists(st.lists(st.integers(0, 50), max_size=40), min_size=1, max_size=4), st.integers(1, 4))
def test_ranges_of_sorted_runs_merge_into_one_order(runs: list[list[int]], targets: int) -> None:
    runs = [sorted(run) for run in runs]
    bounds = bounds_of(runs, targets, None)
    ranges: dict[int, list[bytes]] = {}
    for source, run in enumerate(runs):
        for target, block in by_range([run[:5], run[5:]], None, bounds, 0, source):
            ranges.setdefault(target, []).append(block)
    found = [item for target in sorted(ranges) for items in merged(ranges[target], None) for item in items]
    assert found == sorted(item for run in runs for item in run)


def test_a_hosted_join_reads_its_side_first_and_refuses_what_comes_too_late() -> None:
    def join() -> Any:
        return processors.hash_join((None, None))()

    chunks = [(1, [1, 2]), (0, [1, 3])]
    emitted = [item for items in hosted(join(), ProcessorContext(), chunks, [1, 0]) for item in items]
    assert emitted == [(1, 1), (3, None)]
    with pytest.raises(ProcessorError, match="behind the end of that edge"):
        list(hosted(join(), ProcessorContext(), list(reversed(chunks)), [1, 0]))


def test_an_error_travels_as_text_and_comes_back_with_its_cause_and_vertex() -> None:
    def broken() -> Any:
        yield 1
        raise LookupError("nothing there")

    flow = guarded(broken(), "reader", 3)
    assert next(flow) == 1
    with pytest.raises(Exception, match="in vertex 'reader'") as caught:
        next(flow)
    error = job_error(RuntimeError(f"Spark says\n  {caught.value}\n  at java..."), "x")
    assert (error.vertex, error.processor_index) == ("reader", 3)
    assert isinstance(error.cause, LookupError)
    assert str(error).endswith("LookupError: nothing there")


def test_an_error_too_large_to_travel_leaves_its_text() -> None:
    error = ValueError("x", b"y" * (1 << 20))
    made = job_error(RuntimeError(str(described(error, "v", 0))), "x")
    assert "ValueError" in str(made)
    assert len(str(described(error, "v", 0))) < 10_000


def test_a_failure_of_spark_itself_is_a_failed_job() -> None:
    error = job_error(RuntimeError("no executors\n" * 100), "'mine'")
    assert str(error).startswith("job 'mine' failed on Spark: no executors\n")
    assert str(error).count("\n") < 20
