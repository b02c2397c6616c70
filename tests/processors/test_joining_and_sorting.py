from __future__ import annotations

import errno
import os
import random
import sys
import threading
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import JobConfig, processors
from shmjet.data.errors import ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.general import sort, sorted_runs, spill_files
from shmjet.processors.general.memory_size import memory_size
from shmjet.testing import verify_processor

from .driving import Driver, processors_of

BY_SIZE = (len, lambda pair: pair[0])
SIZES = [(1, "one"), (2, "two"), (2, "zwei")]


def test_hash_join_emits_a_result_for_every_match_and_none_for_no_match() -> None:
    verify_processor(processors.hash_join(BY_SIZE)).inputs(["a", "bb", "ccc"], SIZES).priorities(0, -1).expect(
        [("a", (1, "one")), ("bb", (2, "two")), ("bb", (2, "zwei")), ("ccc", None)]
    )


def test_an_inner_hash_join_leaves_out_what_has_no_match() -> None:
    supplier = processors.hash_join(BY_SIZE, inner=True, project=lambda left, right: left + right[1])
    verify_processor(supplier).inputs(["a", "ccc"], SIZES).priorities(0, -1).expect(["aone"])


def test_several_edges_are_joined_as_their_product() -> None:
    supplier = processors.hash_join(BY_SIZE, (None, str.lower))
    verify_processor(supplier).inputs(["bb", "a"], SIZES, ["BB", "x"]).priorities(0, -1, -1).expect(
        [("bb", (2, "two"), "BB"), ("bb", (2, "zwei"), "BB"), ("a", (1, "one"), None)]
    )


def test_a_stream_that_comes_before_the_table_is_whole_is_an_error_with_the_remedy() -> None:
    driver = Driver(processors_of(processors.hash_join(BY_SIZE))[0])
    driver.feed(SIZES, ordinal=1)
    with pytest.raises(ProcessorError, match=r"edge 1 was complete.*priority\(-1\)"):
        driver.feed(["a"])


def test_an_edge_without_a_clause_is_an_error() -> None:
    driver = Driver(processors_of(processors.hash_join(BY_SIZE))[0])
    with pytest.raises(ProcessorError, match="1 join clauses, but items arrived on edge 2"):
        driver.feed([1], ordinal=2)


def test_wrong_clauses_are_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        processors.hash_join()
    with pytest.raises(TypeError, match="pair per joined edge"):
        processors.hash_join(len)  # type: ignore[arg-type]


pairs = st.tuples(st.integers(0, 3), st.integers())
batches = st.lists(st.lists(pairs, min_size=1, max_size=30), max_size=10)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONGEST_RUN", 8)
    monkeypatch.setattr(sort, "SLICE", 4)


@given(batches=batches, reverse=st.booleans(), by_first=st.booleans())
def test_sort_gives_what_sorted_gives_and_is_stable(
    batches: list[list[tuple[int, int]]], reverse: bool, by_first: bool
) -> None:
    key: Any = (lambda pair: pair[0]) if by_first else None
    driver = Driver(processors_of(processors.sort(key, reverse=reverse))[0], room=5)
    for batch in batches:
        driver.feed(batch)
    assert driver.output == []
    everything = [pair for batch in batches for pair in batch]
    assert driver.complete() == sorted(everything, key=key, reverse=reverse)


@given(
    batches=batches,
    reverse=st.booleans(),
    by_first=st.booleans(),
    limit=st.sampled_from([1, 300, 3000, 20_000]),
    fan_in=st.sampled_from([2, 3, 64]),
    plain=st.booleans(),
)
def test_sort_beyond_its_memory_gives_what_sorted_gives_and_is_stable(
    batches: list[list[tuple[int, int]]], reverse: bool, by_first: bool, limit: int, fan_in: int, plain: bool
) -> None:
    key: Any = (lambda pair: pair[0]) if by_first else None
    items: list[list[Any]] = batches if plain else [[Pair(pair) for pair in batch] for batch in batches]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "FAN_IN", fan_in)
        driver = Driver(processors_of(processors.sort(key, reverse=reverse, memory_limit=limit))[0], room=5)
        for batch in items:
            driver.feed(batch)
        everything = [pair for batch in items for pair in batch]
        assert driver.complete() == sorted(everything, key=key, reverse=reverse)


numbers = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.integers(0, 3)),
    st.lists(st.floats(allow_nan=False)),
    st.lists(st.one_of(st.integers(), st.floats(allow_nan=False))),
)


@given(batches=st.lists(numbers, max_size=6), reverse=st.booleans(), key=st.sampled_from([None, abs, float]))
def test_numbers_are_sorted_as_sorted_sorts_them(batches: list[list[Any]], reverse: bool, key: Any) -> None:
    for limit in (None, 500):
        driver = Driver(processors_of(processors.sort(key, reverse=reverse, memory_limit=limit))[0])
        everything = [number for batch in batches for number in batch]
        try:
            expected = sorted(everything, key=key, reverse=reverse)
        except OverflowError:
            return
        for batch in batches:
            if batch:
                driver.feed(batch)
        assert list(map(repr, driver.complete())) == list(map(repr, expected))


def test_no_key_is_asked_for_twice_when_a_list_is_sorted() -> None:
    for wanted in ([3, 1, 2], ["b", "a"], [1, "a"], [2**70, 1]):
        asked: list[Any] = []

        def key(item: Any, asked: list[Any] = asked) -> Any:
            asked.append(item)
            return str(item)

        items = list(wanted)
        assert sorted_runs.Order(key, False).sort(items) == sorted(wanted, key=str)
        assert len(asked) == len(wanted)


class Pair(tuple[int, int]):
    """Not a tuple for the codec of columns: it has to be pickled."""


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_are_unnamed_and_closed_whatever_happens(tmp_path: Path) -> None:
    before = open_files()
    for fails in (False, True):
        driver = Driver(processors_of(processors.sort(memory_limit=10_000, folder=str(tmp_path)))[0])
        for start in range(0, 2000, 50):
            driver.feed(range(start, start + 50))
        assert open_files() > before
        assert list(tmp_path.iterdir()) == []
        if fails:
            driver.processor.close()
            driver.processor.close()
        else:
            assert driver.complete() == list(range(2000))
        assert open_files() == before


def test_memory_holds_no_more_items_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONGEST_RUN", 1 << 16)
    monkeypatch.setattr(sort, "SLICE", 8192)
    rng = random.Random(1)
    limit = 2 << 20
    driver = Driver(processors_of(processors.sort(memory_limit=limit))[0])
    items = [rng.random() for _ in range(300_000)]  # of 32 bytes each: nearly five times as much
    batches = [items[at : at + 1000] for at in range(0, len(items), 1000)]
    del items
    total = sum(map(len, batches))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for batch in batches:
            driver.feed([value + 0.0 for value in batch])
        assert tracemalloc.get_traced_memory()[1] - before < 1.5 * limit
    finally:
        tracemalloc.stop()
    output = driver.complete()
    assert len(output) == total
    assert all(a <= b for a, b in pairwise(output))


def test_equal_items_come_in_slices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    order = sorted_runs.Order(None, False)
    runs: list[sorted_runs.Run] = [sorted_runs.MemoryRun([5] * 1000) for _ in range(4)]
    assert max(map(len, sorted_runs.merge(runs, order, 100))) <= 200


def test_a_folder_without_room_is_named_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"sort could not make a file in '/not/there'.*set TMPDIR"):
        Driver(processors_of(processors.sort(memory_limit=1, folder="/not/there"))[0]).feed([2, 1])
    driver = Driver(processors_of(processors.sort(memory_limit=1, folder=str(tmp_path)))[0])
    driver.feed([2, 1])
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"sort could not write in .*No space left on device; set TMPDIR .* memory_limit"):
        driver.feed([3])
    driver.processor.close()


def test_items_that_go_to_a_file_must_be_picklable() -> None:
    driver = Driver(processors_of(processors.sort(id, memory_limit=1))[0])
    driver.feed([threading.Lock()])
    with pytest.raises(TypeError, match="cannot be pickled"):
        driver.feed([threading.Lock()])
    driver.processor.close()


def test_the_memory_limit_is_checked() -> None:
    with pytest.raises(ValueError, match="at least 1 byte, got 0"):
        processors.sort(memory_limit=0)
    with pytest.raises(TypeError, match=r"an int \(bytes\) or None, got '1G'"):
        processors.sort(memory_limit="1G")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="folder must be a str or None"):
        processors.sort(folder=5)  # type: ignore[arg-type]


def test_footprints_are_near_the_truth() -> None:
    assert memory_size([]) == 0
    assert memory_size(list(range(1000))) == pytest.approx(36 * 1000, rel=0.1)
    words = [str(n) * 10 for n in range(1000)]
    assert memory_size(words) == pytest.approx(sum(map(sys.getsizeof, words)) + 8000, rel=0.2)
    pairs = [(1.5, "abc") for _ in range(1000)]
    one = sys.getsizeof(pairs[0]) + sys.getsizeof(1.5) + sys.getsizeof("abc")
    assert memory_size(pairs) == 1000 * (one + 8)
    assert memory_size([{n: [n] * 100 for n in range(100)}]) > 100 * 100 * 8
    assert memory_size([Path("/tmp"), {1, 2}, object(), b"x"]) > 0


def test_sort_in_all_modes() -> None:
    verify_processor(processors.sort(str.lower)).inputs(["b", "A", "c", "a"]).expect(["A", "a", "b", "c"])


def test_sort_beyond_its_memory_in_all_modes() -> None:
    words = ["b", "A", "c", "a", "B", "C", "d"]
    verify_processor(processors.sort(str.lower, memory_limit=120)).inputs(words).expect(sorted(words, key=str.lower))


def test_items_that_cannot_be_compared_are_an_error() -> None:
    driver = Driver(processors_of(processors.sort())[0])
    with pytest.raises(TypeError, match="'<' not supported"):
        driver.feed([1, "a"])


def test_distinct_emits_the_first_item_of_each_key_at_once() -> None:
    verify_processor(processors.distinct()).inputs([1, 2, 1, 3, 2]).without_complete().expect([1, 2, 3])
    verify_processor(processors.distinct(str.lower)).inputs(["a", "A", "b", "B", "a"]).expect(["a", "b"])


def test_the_job_says_how_much_memory_a_sort_may_take_and_where_its_files_go(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="sort could not make a file in '/not/there'"):
        Driver(
            processors_of(processors.sort())[0], config=JobConfig(memory_limit=1000, spill_folder="/not/there")
        ).feed(range(1000))
    config = JobConfig(memory_limit=40_000, spill_folder=tmp_path)
    drivers = [Driver(processors_of(processors.sort())[0], count=count, config=config) for count in (1, 4)]
    spilled = []
    for driver in drivers:
        before = open_files()
        for start in range(0, 3000, 50):  # 24,000 bytes, as numbers alone are kept
            driver.feed(range(start, start + 50))
        spilled.append(open_files() > before)
        assert driver.complete() == list(range(3000))
        driver.processor.close()
    assert spilled == [False, True]  # the limit is for all processors of the stage on a member


def test_a_sort_writes_early_when_others_take_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 30]
    monkeypatch.setattr(sort, "LOOK_BYTES", 1000)
    for module in (sort, spill_files):
        monkeypatch.setattr(module, "process_memory", lambda: left[0])
    driver = Driver(processors_of(processors.sort())[0])
    before = open_files()
    driver.feed(range(1000))
    assert open_files() == before
    left[0] = 1 << 20
    driver.feed(range(1000, 2000))
    assert open_files() > before
    assert driver.complete() == list(range(2000))
    driver.processor.close()


def test_what_is_left_of_memory_and_shared_out_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_files, "process_memory", lambda: 64_000)  # 32,000 for the stage
    driver = Driver(processors_of(processors.sort())[0], count=4)
    before = open_files()
    driver.feed(range(500))  # 4,000 bytes
    assert open_files() == before
    driver.feed(range(500, 1000))
    assert open_files() > before
    driver.processor.close()


@pytest.mark.parametrize("sizes", [SIZES, SIZES[:2]])
@pytest.mark.parametrize("options", [{"inner": True}, {}, {"project": lambda left, right: (left, right)}])
def test_timed_items_give_their_times_to_the_results_of_a_hash_join(sizes: list[Any], options: dict[str, Any]) -> None:
    times = {"a": 5, "bb": 6, "cccc": 7}
    bare, timed = (Driver(processors_of(processors.hash_join(BY_SIZE, timed=t, **options))[0]) for t in (False, True))
    for driver, items in ((bare, list(times)), (timed, [(time, item) for item, time in times.items()])):
        driver.feed(sizes, 1).until_true(driver.processor.complete_edge, 1)
        driver.feed(items)
    expected = [(times[result[0]], result) for result in bare.output]
    assert timed.output == expected
    supplier = processors.hash_join(BY_SIZE, timed=True, **options)
    verify_processor(supplier).inputs([*((t, i) for i, t in times.items()), Watermark(9)], sizes).priorities(
        0, -1
    ).expect([*expected, Watermark(9)])
