"""What an item costs in every shape of a job: shares kept, keys, skew, sizes, fan-out. It names cliffs.

Each sweep runs one job at several points, from one neighbour to the next, and prints nanoseconds per item *read*. A
point that costs more than 1.5 times what its neighbour explains is named as a cliff; for filters, flat maps, joins and
stages with state is a point that costs more than 1.2 times as much as the point where all items are kept. `_sweeps.py`
has the rules. There should be no cliffs.

What differs by nature is measured as well, in plain Python or with numpy and polars ("by hand") and allowed for:
tables of many keys miss the caches, large items have more bytes to copy, a batch of one row costs numpy as many calls
as one of thousands, and a join that finds nothing makes no batch at all. With skewed keys one worker has more to do
than the others; such figures are per item of the busiest worker. Time in which other processes had the cores is left
out.

`_shapes_columns.py` has the sweeps of batches, `_shapes_io.py` those of sources and sinks.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import _shapes_columns
import _shapes_io
from _harness import Report, parse_options
from _shapes import KEPT, SHARES, Lab, with_ends
from _sweeps import Point, Sweep, report_each

import shmjet
from shmjet import AbstractProcessor, JetConfig, aggregate_ops
from shmjet.aggregate_ops import AggregateOperation
from shmjet.pipeline import BatchStage

KEYS = (1, 10, 1000, 100_000, 1_000_000)
SIZES = (8, 64, 512, 4096, 32_768, 262_144)
FAN_OUTS = (1, 10, 100, 1000, 10_000, 100_000)

Stage = BatchStage[Any]


class Keep(AbstractProcessor):
    """A processor as a user writes it: emits the items below a bound."""

    def __init__(self, bound: int) -> None:
        self._bound = bound

    def try_process0(self, item: int) -> bool:
        """Emit it, or leave it out."""
        return self.try_emit(item) if item % KEPT < self._bound else True


def latest(bound: int) -> AggregateOperation[int, int, int | None]:
    """The latest item, without a result when that is at or above the bound."""
    return AggregateOperation(int, lambda _, x: x, export=lambda x: x if x % KEPT < bound else None)


STATELESS: dict[str, Callable[[Stage, int], Stage]] = {
    "map": lambda s, bound: s.map(lambda x: x if x % KEPT < bound else None),
    "filter": lambda s, bound: s.filter(lambda x: x % KEPT < bound),
    "flat_map": lambda s, bound: s.flat_map(lambda x: [x] if x % KEPT < bound else []),
    "flat_map_lazy": lambda s, bound: s.flat_map(lambda x: iter([x] if x % KEPT < bound else [])),
    "fused": lambda s, bound: s.map(lambda x: x + 0).filter(lambda x: x % KEPT < bound).flat_map(lambda x: [x]),
    "of_ones_own": lambda s, bound: s.custom_transform("keep", lambda: Keep(bound)),
}

WITH_STATE: dict[str, Callable[[Stage, int], Stage]] = {
    "map_stateful": lambda s, bound: s.map_stateful(list, lambda _, x: x if x % KEPT < bound else None),
    "filter_stateful": lambda s, bound: s.filter_stateful(list, lambda _, x: x % KEPT < bound),
    "flat_map_stateful": lambda s, bound: s.flat_map_stateful(list, lambda _, x: [x] if x % KEPT < bound else []),
    "rolling_aggregate": lambda s, bound: s.rolling_aggregate(latest(bound)),
    "keyed_map_stateful": lambda s, bound: s.grouping_key(seventh).map_stateful(
        list, lambda _, key, x: x if x % KEPT < bound else None
    ),
    "keyed_filter_stateful": lambda s, bound: s.grouping_key(seventh).filter_stateful(
        list, lambda _, key, x: x % KEPT < bound
    ),
    "map_using_service": lambda s, bound: s.map_using_service(int, lambda _, x: x if x % KEPT < bound else None),
    "filter_using_service": lambda s, bound: s.filter_using_service(int, lambda _, x: x % KEPT < bound),
    "flat_map_using_service": lambda s, bound: s.flat_map_using_service(
        int, lambda _, x: [x] if x % KEPT < bound else []
    ),
}


def seventh(x: int) -> int:
    """A key of seven."""
    return x % 7


def joined(lab: Lab, how: str, stage: Stage, bound: int) -> Stage:
    """Join with a table of the numbers below a bound."""
    side = stage.pipeline.read_from(lab.numbers(bound, alone=True))
    key = lambda x: x % KEPT  # noqa: E731
    if how == "inner_hash_join":
        return stage.inner_hash_join(side, key, None)
    if how == "inner_hash_join_fn":
        return stage.inner_hash_join(side, key, None, lambda left, right: left)
    if how == "hash_join_fn":
        return stage.hash_join(side, key, None, lambda left, right: right)
    return stage.join(side, key, None)


def kept_shares(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps over the share of items that a stage lets through."""

    def sweep(name: str, then: Callable[[Stage, int], Stage], items: int) -> Sweep:
        def point(share: float) -> Point:
            bound = round(share * KEPT)
            return Point(f"{share:g}", items, lab.job(lambda s: then(s, bound), lab.numbers(items)), kept=share)

        return Sweep(f"{name}_kept", [point(share) for share in SHARES], kept_limit=True)

    for name, then in STATELESS.items():
        yield sweep(name, then, lab.items)
    for name, then in WITH_STATE.items():
        yield sweep(name, then, lab.items // 2)
    for how in ("inner_hash_join", "inner_hash_join_fn", "hash_join_fn", "join"):
        yield sweep(how, lambda s, bound, how=how: joined(lab, how, s, bound), lab.items // 2)  # type: ignore[misc]
    for kind in ("map", "filter", "flat_map"):
        yield sweep(f"{kind}_async", awaiting(kind), lab.items // 20)

    def new(share: float) -> Point:
        keys = max(1, int(share * lab.items))
        distinct = lab.job(lambda s: s.distinct(lambda x: x % keys), lab.numbers(lab.items))
        return Point(f"{share:g}", lab.items, distinct, kept=share)

    yield Sweep("distinct_kept", [new(share) for share in SHARES])


def awaiting(kind: str) -> Callable[[Stage, int], Stage]:
    """Return what adds a stage with a coroutine function."""

    def then(stage: Stage, bound: int) -> Stage:
        async def mapped(_: Any, x: int) -> int | None:
            return x if x % KEPT < bound else None

        async def kept(_: Any, x: int) -> bool:
            return x % KEPT < bound

        async def expanded(_: Any, x: int) -> list[int]:
            return [x] if x % KEPT < bound else []

        if kind == "map":
            return stage.map_using_service_async(int, mapped, max_concurrent_ops=64)
        if kind == "filter":
            return stage.filter_using_service_async(int, kept, max_concurrent_ops=64)
        return stage.flat_map_using_service_async(int, expanded, max_concurrent_ops=64)

    return then


# -- keys --------------------------------------------------------------------------------------------------------------

BY_KEY: dict[str, Callable[[Stage], Stage]] = {
    "counting": lambda s: s.grouping_key(same).aggregate(aggregate_ops.counting()),
    "collecting": lambda s: s.grouping_key(same).aggregate(aggregate_ops.to_list()),
    "aggregate_of_ones_own": lambda s: s.grouping_key(same).aggregate(
        AggregateOperation(lambda: [0], add_one, combine=add_all)
    ),
    "map_stateful": lambda s: s.grouping_key(same).map_stateful(list, lambda state, key, x: x),
    "rolling_aggregate": lambda s: s.grouping_key(same).rolling_aggregate(aggregate_ops.counting()),
    "distinct": lambda s: s.distinct(),
    "sort": lambda s: s.sort(),
}


def same(x: Any) -> Any:
    """Return the item: it is its own key."""
    return x + 0


def add_one(count: list[int], _: Any) -> None:
    """Count an item."""
    count[0] += 1


def add_all(count: list[int], other: list[int]) -> None:
    """Add another count."""
    count[0] += other[0]


def table(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Keep a list for each key: by hand."""
    found: dict[int, list[int]] = {}
    for x in numbers:
        state = found.get(x + 0)
        if state is None:
            state = found[x] = [0]
        state[0] += 1
    return found


def key_counts(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps over the number of keys, and the skew among them."""
    items, counts = lab.items, [keys for keys in KEYS if keys <= lab.items]

    def by_hand(
        keys: int, skew: float = 0.0, collect: Callable[[Iterable[int]], object] = table
    ) -> Callable[[], object]:
        draw = lab.drawn(keys, skew)
        return lambda: collect(chain.from_iterable(draw(0, 1, items)))

    for name, then in BY_KEY.items():
        collect = sorted if name == "sort" else table
        points = [
            Point(f"{keys:,}", items, lab.job(then, lab.random(items, keys)), by_hand(keys, collect=collect))
            for keys in counts
        ]
        yield Sweep(f"{name}_keys", points)
    for name in ("counting", "map_stateful", "distinct"):
        points = []
        for skew in (0.0, 0.5, 0.9, 0.99, 1.0):
            busiest = skew * lab.workers + 1 - skew if name == "map_stateful" else 1.0  # the others have two stages
            run = lab.job(BY_KEY[name], lab.random(items, 1000, skew))
            points.append(Point(f"{skew:g}", items * busiest, run, by_hand(1000, skew)))
        yield Sweep(f"{name}_skew", points)

    def join(keys: int) -> Point:
        def then(stage: Stage) -> Stage:
            return stage.inner_hash_join(stage.pipeline.read_from(lab.numbers(keys)), same, None)

        return Point(f"{keys:,}", items + lab.workers * keys, lab.job(then, lab.random(items, keys)), by_hand(keys))

    yield Sweep("inner_hash_join_keys", [join(keys) for keys in counts])


# -- sizes -------------------------------------------------------------------------------------------------------------


def item_sizes(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps over the bytes of an item and over the results of one item."""

    def handed_on(size: int, kind: type) -> Point:
        item = b"x" * size if kind is bytes else "x" * size
        return Point(f"{size:,} B", lab.items, lab.job(lambda s: s.map(unchanged), lab.repeated(lab.items, item)))

    def exchanged(size: int, kind: type) -> Point:
        items = min(lab.items // 2, lab.bytes // size)
        moved = lab.job(lambda s: s.rebalance(unchanged).map(unchanged), lab.prefixed(items, size, kind))
        return Point(f"{size:,} B", items, moved, lambda: pickled(items, size, kind))

    def expanded(fan_out: int, make: Callable[[int], Iterable[int]]) -> Point:
        items = max(1, lab.items // fan_out // lab.workers) * lab.workers  # as many for each worker

        def hand() -> None:
            deque(chain.from_iterable(make(fan_out) for _ in range(items)), 0)

        expand = lab.job(lambda s: s.flat_map(lambda x: make(fan_out)), lab.numbers(items))
        return Point(f"{fan_out:,}", items * (1 + fan_out), expand, hand)

    def matched(matches: int) -> Point:
        items = lab.items // (1 + matches)

        def then(stage: Stage) -> Stage:
            side = stage.pipeline.read_from(lab.numbers(10 * matches))
            return stage.inner_hash_join(side, lambda x: x % 10, lambda x: x % 10)

        handled = items * (1 + matches) + 10 * matches * lab.workers
        return Point(f"{matches}", handled, lab.job(then, lab.numbers(items)))

    for kind in (bytes, str):
        yield Sweep(f"map_{kind.__name__}_size", [handed_on(size, kind) for size in SIZES])
        yield Sweep(f"exchange_{kind.__name__}_size", [exchanged(size, kind) for size in SIZES])
    unit = "ns/item read or emitted"
    yield Sweep("flat_map_list_fan_out", [expanded(n, lambda n: [0] * n) for n in FAN_OUTS], unit)
    yield Sweep("flat_map_generator_fan_out", [expanded(n, lambda n: (0 for _ in range(n))) for n in FAN_OUTS], unit)
    yield Sweep("inner_hash_join_matches", [matched(n) for n in (1, 10, 100, 1000)], unit)


def unchanged(x: Any) -> Any:
    """Return the item."""
    return x


def pickled(items: int, size: int, kind: type) -> None:
    """Copy items as one must to hand them to another process: by hand."""
    for at in range(0, items, 2048):  # as many as travel at once: beyond the caches where they are large
        batch = list(with_ends(size, kind, min(2048, items - at)))
        hash(tuple(batch))
        pickle.loads(pickle.dumps(batch, 5))


SWEEPS: dict[str, Callable[[Lab], Iterator[Sweep]]] = {
    "kept": kept_shares,
    "keys": key_counts,
    "sizes": item_sizes,
    "columns": _shapes_columns.sweeps,
    "io": _shapes_io.sweeps,
}


def main() -> int:
    """Run the sweeps; name the cliffs at the end."""
    options = parse_options(__doc__, list(SWEEPS))
    report = Report(options)
    found: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        shmjet.new_instance(JetConfig(cores=options.workers)) as jet,
    ):
        lab = Lab(jet, options, Path(folder))
        for name, make in SWEEPS.items():
            if options.wants(name):
                found += report_each(make(lab), options, report)
    if not options.json:
        print(f"{len(found)} cliffs" if found else "no cliffs", *found, sep="\n")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
