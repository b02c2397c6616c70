"""Processors go on from saved state, also when there are others in number: nothing is lost, nothing counts twice."""

from __future__ import annotations

import importlib
import math
import pickle
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from shmjet import BroadcastKey, processors
from shmjet.aggregate_ops import averaging, counting, summing, to_list
from shmjet.core.context import ProcessorContext
from shmjet.core.keys import partition_id
from shmjet.core.processor import Processor
from shmjet.core.state_placement import StatePlacement, hand_in_placement
from shmjet.data.errors import ProcessorError
from shmjet.processors.checks.assertion_sinks import (
    AssertAnyOrderProcessor,
    AssertCollectedProcessor,
    AssertContainsProcessor,
    AssertOrderedProcessor,
)
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.state_keys import own_key
from shmjet.processors.general.stateful import rolling_aggregate
from shmjet.processors.general.table_lookup import join_table
from shmjet.testing import verify_processor
from tests.processors.driving import Driver, processors_of, restored

KEYS: list[Any] = ["a", "b", "a", None, 7, "c", None, math.nan, "b", 7.0, (1, "x"), math.nan, "a"]
COUNTS = {"a": 3, "b": 2, None: 2, 7: 2, "c": 1, "nan": 2, (1, "x"): 1}


def spread(supplier: Any, items: list[Any], count: int, key: Callable[[Any], Any] = lambda item: item) -> list[Driver]:
    """Return processors that have got items by key."""
    drivers = [Driver(processor, index=i, count=count) for i, processor in enumerate(processors_of(supplier, count))]
    for item in items:
        drivers[partition_id(key(item)) % count].feed([item])
    return drivers


def saved(drivers: list[Driver]) -> list[tuple[Any, Any]]:
    return [entry for driver in drivers for entry in driver.save()]


def lost(drivers: list[Driver]) -> list[tuple[Any, Any]]:
    """Return the state of processors, which are closed."""
    entries = saved(drivers)
    for driver in drivers:
        driver.processor.close()
    return entries


def by_text(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = {("nan" if key != key else key): value for key, value in pairs}
    assert len(found) == len(pairs)
    return found


def mirrored(items: list[Any]) -> list[Any]:
    """Return items as they come from elsewhere: NaNs are other objects."""
    return list(pickle.loads(pickle.dumps(items)))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "supplier",
    [
        processors.aggregate_by_key(None, counting()),
        processors.aggregate_by_key(None, to_list().and_then(len)),
        processors.group_and_accumulate(None, 0, lambda n, _: n + 1),
        processors.aggregate_by_key(None, averaging(lambda _: 1).with_identity_finish().and_then(lambda pair: pair[1])),
    ],
)
def test_groups_go_on_with_another_number_of_processors(supplier: Any, count: int) -> None:
    entries = saved(spread(supplier, KEYS[:7], 3))
    others = restored(supplier, entries, count)
    for key in mirrored(KEYS[7:]):
        others[partition_id(key) % count].feed([key])
    assert by_text([pair for driver in others for pair in driver.complete()]) == COUNTS


def test_accumulators_of_one_key_from_several_processors_are_combined() -> None:
    first = processors.accumulate_by_key(None, counting())
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(first, 2))]
    drivers[0].feed("aab")
    drivers[1].feed("abc")
    (one,) = restored(first, saved(drivers), 1)
    assert dict(one.feed("d").complete()) == {"a": 3, "b": 2, "c": 1, "d": 1}
    totals = processors.aggregate_by_key(None, summing(lambda _: 0.5))
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(totals, 2))]
    (one,) = restored(totals, saved([drivers[0].feed("ab"), drivers[1].feed("a")]), 1)
    assert dict(one.complete()) == {"a": 1.0, "b": 0.5}


def test_states_of_one_key_from_several_processors_are_refused_where_they_cannot_be_combined() -> None:
    supplier = processors.map_stateful(list, lambda state, key, item: state.append(item) or len(state), None)
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    entries = saved([drivers[0].feed("a"), drivers[1].feed("a")])
    with pytest.raises(ProcessorError, match=r"several states for one key.* partition the edge by the key"):
        restored(supplier, entries, 1)


def numbered(state: list[Any], item: Any) -> int:
    state.append(item)
    return len(state)


def test_a_state_of_each_processor_comes_back_to_it() -> None:
    supplier = processors.map_stateful(list, numbered)
    drivers = [Driver(processor, index=i, count=3) for i, processor in enumerate(processors_of(supplier, 3))]
    entries = saved([driver.feed("x" * i) for i, driver in enumerate(drivers)])
    assert [driver.feed("y").output for driver in restored(supplier, entries, 3)] == [[1], [2], [3]]
    with pytest.raises(ProcessorError, match=r"several states for one key.* give a key"):
        restored(supplier, entries, 1)


def test_a_state_in_all_goes_where_all_edges_lead() -> None:
    for supplier, output in (
        (processors.map_stateful(list, numbered), [4]),
        (rolling_aggregate(counting()), [4]),
        (processors.aggregate(to_list()), [["x", "x", "x", "y"]]),
        (processors.combine(summing()), [7]),
    ):
        drivers = [Driver(processor, index=i, count=4) for i, processor in enumerate(processors_of(supplier, 4))]
        drivers[3].feed([1, 2, 3] if output == [7] else "xxx")
        others = restored(supplier, saved(drivers), 2, to_one=0)
        others[0].feed([1] if output == [7] else "y")
        assert others[0].output + others[0].complete() in (output, output * 2)


def test_an_operation_without_combine_keeps_the_parts_of_several_processors_apart() -> None:
    op = processors.AggregateOperation(list, list.append)
    supplier = processors.aggregate(op)
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    entries = saved([drivers[0].feed("a"), drivers[1].feed("bc")])
    (one,) = restored(supplier, entries, 1)
    assert one.feed("d").complete() == [["a", "d"], ["b", "c"]]


def test_a_key_of_ones_own_leads_back() -> None:
    for total in (1, 2, 3, 16, 64):
        for index in range(total):
            key = own_key(ProcessorContext(global_index=index, total_parallelism=total))
            assert partition_id(key) % total == index
    for partitioner, found in ((lambda key, count: key % count, 2), (lambda key, count: len(key), 2)):
        context = ProcessorContext(global_index=2, total_parallelism=3)
        hand_in_placement(context, partial(StatePlacement, 10, partitioner=partitioner))
        assert own_key(context) == found


@pytest.mark.parametrize("count", [1, 3])
def test_joined_sides_that_all_processors_have_are_saved_once(count: int) -> None:
    supplier = processors.hash_join((None, lambda pair: pair[0]), (None, lambda pair: pair[0]))
    side, other = [("a", 1), ("b", 2), ("a", 3), (math.nan, 4)], [("b", 5)]
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    for driver in drivers:
        driver.feed(side, 1).feed(other, 2)
        driver.until_true(driver.processor.complete_edge, 1)
    entries = saved(drivers)
    assert all(isinstance(key, BroadcastKey) for key, _ in entries)
    for driver in restored(supplier, entries, count):
        driver.until_true(driver.processor.complete_edge, 1)
        driver.until_true(driver.processor.complete_edge, 2)
        assert driver.feed(["a", "b", math.nan]).output == [
            ("a", ("a", 1), None),
            ("a", ("a", 3), None),
            ("b", ("b", 2), ("b", 5)),
            (driver.output[-1][0], None, None),
        ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sides_that_lie_by_key_come_back_by_key(count: int) -> None:
    side = [(key, n) for n, key in enumerate([*"abcdefgh", None, "a"])]
    supplier = processors.hash_join((None, lambda pair: pair[0]), inner=True)
    by_key = StatePlacement(271)
    drivers = [
        Driver(processor, index=i, count=2, placement=by_key) for i, processor in enumerate(processors_of(supplier, 2))
    ]
    for item in side:
        drivers[partition_id(item[0]) % 2].feed([item], 1)
    others = restored(supplier, saved(drivers), count, placement=by_key)
    for driver in others:
        driver.until_true(driver.processor.complete_edge, 1)
    assert others[partition_id("a") % count].feed(["a"]).output == [("a", ("a", 0)), ("a", ("a", 9))]
    table = join_table(None, [False], lambda key, value: (key, value))
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(table, 2))]
    for item in side:
        drivers[partition_id(item[0]) % 2].feed([item], 1)
    others = restored(table, saved(drivers), count)
    for key in ("a", None, "h"):
        others[partition_id(key) % count].feed([key])
    assert sorted(map(str, (item for driver in others for item in driver.output))) == sorted(
        map(str, [("a", 9), (None, 8), ("h", 7)])
    )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("limit", [None, 2000])
@pytest.mark.parametrize(
    "items",
    [
        [(n * 7919) % 1000 for n in range(1000)],
        [((n * 7919) % 10, n) for n in range(500)],
        [math.nan, 2.5, "x", math.nan] * 0 + [math.nan, 2.5, -1.0, math.nan] * 40,
    ],
)
def test_a_sort_goes_on_whatever_it_was_doing(items: list[Any], limit: int | None, count: int) -> None:
    key = (lambda pair: pair[0]) if isinstance(items[0], tuple) else None
    supplier = processors.sort(key, memory_limit=limit)
    half = len(items) // 2
    drivers = [
        Driver(processor, index=i, count=2, room=7).feed(items[i:half:2])
        for i, processor in enumerate(processors_of(supplier, 2))
    ]
    others = restored(supplier, lost(drivers), count)
    for at, item in enumerate(items[half:]):
        others[at % count].feed([item])
    emitted: list[Any] = []
    for driver in others:
        for _ in range(3):  # and once more while it emits
            driver.call(driver.processor.complete)
        emitted += driver.output
    (final,) = restored(supplier, lost(others), 1)
    emitted += final.complete()
    assert Counter(map(str, emitted)) == Counter(map(str, items))
    rest = final.output
    assert [str(item) for item in rest] == [str(i) for i in sorted(rest, key=lambda i: (i != i, i))] or key is not None


def test_a_sort_that_saves_goes_on_itself() -> None:
    driver = Driver(processors_of(processors.sort())[0], room=10)
    driver.feed(range(50, 0, -1))
    assert len(driver.save()) == 1
    driver.feed(range(100, 50, -1))
    driver.call(driver.processor.complete)
    done = len(driver.output)
    assert 0 < done < 100
    left = [item for _, items in driver.save() for item in items]
    assert sorted(left) == list(range(done + 1, 101))
    assert driver.complete() == list(range(1, 101))


def test_saving_takes_many_calls_for_much_state_and_does_not_copy_it() -> None:
    driver = Driver(processors_of(processors.aggregate_by_key(None, counting()))[0])
    driver.feed(range(20_000))
    outbox, processor = driver.outbox, driver.processor
    sizes = []
    while True:
        outbox.begin_saving()
        answer = processor.save_to_snapshot()
        sizes.append(len(outbox.end_saving(answer)))
        if answer:
            break
    assert sum(sizes) == 20_000
    assert max(sizes) <= 4096


# -- the whole library -------------------------------------------------------------------------------------------------

STATES = {
    "AggregateProcessor": "one accumulator, under a key of its own",
    "AssertAnyOrderProcessor": "the items so far, under a key of its own",
    "AssertCollectedEventuallyProcessor": "the items so far, under a key of its own",
    "AssertCollectedProcessor": "the items so far, under a key of its own",
    "AssertContainsProcessor": "the items that have not come, under a key of its own",
    "AssertOrderedProcessor": "the number of items so far, under a key of its own",
    "AsyncServiceProcessor": "the items of calls under way, by key or under a key of its own; a watermark is broadcast",
    "BatchStreamProcessor": "the schedule, the position and the watermark",
    "BuiltSinkProcessor": "what the user's snapshot function gives",
    "BuiltSourceProcessor": "what the user's snapshot function gives",
    "BuiltStreamProcessor": "what the user's snapshot function gives, and the watermark",
    "CollectProcessor": "the file that the client reads, and how far it is to be committed",
    "CombineByKeyProcessor": "accumulators by key",
    "CombineGroupsProcessor": "rows of the table, by partition",
    "CombineWordsProcessor": "the counts, by partition",
    "CombiningColumnWindowProcessor": "states by frame and key, in pieces by partition, and the next window for all",
    "ColumnSessionsProcessor": "states by session and key, in pieces by partition, and the watermark for all",
    "ColumnStreamJoinProcessor": "the rows of both sides, in pieces by partition; the watermark is broadcast",
    "CombiningWindowProcessor": "accumulators by frame under their keys, the next window for all",
    "CountColumnProcessor": "none: it emits its counts before the barrier",
    "CountWordsProcessor": "the positions in files",
    "DistinctProcessor": "the keys met, by key",
    "EarlyColumnSessionsProcessor": "states by session and key, in pieces by partition, and the watermark for all",
    "EarlyColumnWindowProcessor": "states by frame and key, in pieces by partition, and the next window for all",
    "EarlySessionWindowProcessor": "sessions by key, the watermark for all",
    "EarlySlidingWindowProcessor": "accumulators by frame under their keys, the next window for all",
    "ExpiringExpandingProcessor": "states with the times of their last items, by key; the watermark is broadcast",
    "ExpiringProcessor": "states with the times of their last items, by key; the watermark is broadcast",
    "FileWatcherProcessor": "the positions in files, and the watermark",
    "MapJournalProcessor": "the positions in logs, and the watermark",
    "FramesOfColumnsProcessor": "the next frame for all, if late rows go anywhere; it emits its frames first",
    "FrameProcessor": "the next frame for all, if late events go anywhere; it emits its frames before the barrier",
    "GenerateProcessor": "the position",
    "GroupAndAccumulateProcessor": "values by key",
    "GroupAndCollectProcessor": "containers by key",
    "GroupByProcessor": "rows of the table, by partition",
    "ProjectedGroupByProcessor": "none: it emits its states before the barrier",
    "HashJoinBatchesProcessor": "rows of the build side: broadcast, or by partition",
    "HashJoinProcessor": "the tables: broadcast by the first processor, or by key",
    "DistinctRowsProcessor": "the keys it has met, in pieces of one partition",
    "UnionProcessor": "none: it tells what it knows of columns before the barrier",
    "InsertWatermarksProcessor": "the watermark, for all; restored to the least",
    "ItemStreamProcessor": "the schedule, the position and the watermark",
    "ItemsProcessor": "the position",
    "KeyedAggregateProcessor": "accumulators by key",
    "PartitionedItemsProcessor": "the positions by partition",
    "PartitionedMapProcessor": "the positions by partition",
    "PeekActiveProcessor": "that of the processor inside",
    "PeekProcessor": "that of the processor inside",
    "ActiveWrapping": "that of the processor inside",
    "TimedActiveProcessor": "that of the processor inside, and the times at hand, which all get",
    "TimedProcessor": "that of the processor inside, and the times at hand, which all get",
    "WrappingProcessor": "that of the processor inside",
    "ReadListProcessor": "the position",
    "ReadMapProcessor": "the position",
    "RecordProcessor": "the positions in files",
    "RemoteListReader": "how far each share has been read",
    "RemoteMapReader": "how far each share has been read",
    "RemoteListWriter": "none: it writes what it has before the barrier",
    "RemoteMapWriter": "none: it writes what it has before the barrier",
    "RemoteJournalProcessor": "clusters and sequences by partition, and the watermark",
    "RemoteRecordProcessor": "the positions in files",
    "SocketStreamProcessor": "the watermark; it promises nothing of the lines",
    "SortBatchesProcessor": "batches of the rows",
    "SortProcessor": "the items, in lists under a key of its own",
    "StatefulExpandingProcessor": "states by key, or one under a key of its own",
    "StatefulProcessor": "states by key, or one under a key of its own",
    "StreamJoinProcessor": "the rows of both sides and what has had a match, by key; the watermark is broadcast",
    "TableJoinProcessor": "the table by key",
    "TimedSource": "the watermark, for all, and positions",
    "RowsProcessor": "none: it emits what it has gathered before the barrier",
    "ToBatchesProcessor": "none: it emits what it has gathered before the barrier",
    "WriteListProcessor": "none: it writes what it has before the barrier, or writes ahead",
    "WriteMapProcessor": "none: it writes what it has before the barrier",
    "WriteMergingProcessor": "none: it writes what it has before the barrier, or writes ahead",
    "WriteObservableProcessor": "none: it sends what it has before the barrier",
}
"""What each class with hooks for snapshots saves."""

STATELESS = {
    "FilterProcessor",
    "FlatMapProcessor",
    "FusedExpandingProcessor",
    "FusedProcessor",
    "FusedRowsProcessor",
    "GuardedStepsProcessor",
    "LoggerProcessor",
    "MapBatchesProcessor",
    "MapLookupProcessor",
    "MapProcessor",
    "ServiceExpandingProcessor",
    "ServiceProcessor",
    "NoopProcessor",
    "ProjectBatchesProcessor",
    "UnionCheckProcessor",
    "PairProcessor",
    "PassingProcessor",
    "ReadLinesProcessor",
    "ToRowsProcessor",
    "WriteSocketProcessor",
}
"""Classes that keep nothing between two callbacks, or promise nothing."""


def classes() -> Iterator[type[Processor]]:
    """Yield the classes of the library that are not made to be inherited from."""
    for found in pkgutil.walk_packages(processors.__path__, "shmjet.processors."):
        module = importlib.import_module(found.name)
        for name, kind in vars(module).items():
            is_own = isinstance(kind, type) and issubclass(kind, Processor) and kind.__module__ == found.name
            if is_own and not name.startswith("_") and not kind.__subclasses__():
                yield kind


def test_it_is_known_of_every_processor_how_its_state_is_saved() -> None:
    hooks = ("save_to_snapshot", "saved_entries")
    for kind in classes():
        name = kind.__name__
        if any(base.__name__ in ("FileSink", "FileProcessor") for base in kind.__mro__):
            continue
        inherited = [getattr(BulkProcessor, hook) for hook in hooks] + [Processor.save_to_snapshot, None]
        has_hooks = any(getattr(kind, hook, None) not in inherited for hook in hooks)
        assert has_hooks == (name in STATES), f"{name}: say in STATES what it saves"
        assert has_hooks != (name in STATELESS), f"{name}: say in STATELESS that it saves nothing"


def test_sinks_that_check_go_on_checking() -> None:
    check = verify_processor(partial(AssertOrderedProcessor, (1, 2, 3), "wrong")).inputs([1, 2, 3])
    check.expect()
    with pytest.raises(AssertionError, match="wrong: expected 3 items, got 2; missing at the end: 3"):
        check.inputs([1, 2]).expect()
    check = verify_processor(partial(AssertAnyOrderProcessor, (3, 2, 1), "wrong")).inputs([1, 2, 3])
    check.expect()
    check = verify_processor(partial(AssertContainsProcessor, (3, 1), "wrong")).inputs([1, 2, 3])
    check.expect()
    with pytest.raises(
        AssertionError, match="wrong: 1 of the expected items are not among the 2 that came\nmissing: 3"
    ):
        check.inputs([1, 2]).expect()
    check = verify_processor(partial(AssertCollectedProcessor, lambda items: sorted(items) == [1, 2, 3]))
    check.inputs([3, 1, 2]).expect()
