"""The sweeps of `shapes.py` over batches: rows in a batch, shares kept, keys and skew, in nanoseconds per row."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from _shapes import KEPT, SHARES, Lab, bounds
from _sweeps import Point, Sweep

from shmjet import Batch, column, processors
from shmjet.columns import count, sum_
from shmjet.core import DAG, between, from_
from shmjet.pipeline import BatchStage, SourceDef

ROWS = (1, 10, 100, 1000, 10_000, 100_000)
KEYS = (1, 10, 1000, 100_000, 1_000_000)
MOST_BATCHES = 20_000
UNIT = "ns/row"

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is imported

Stage = BatchStage[Any]
Arrays = dict[str, Any]


def arrays(rows: int, keys: int = 1000, skew: float = 0.0, seed: int = 0) -> Arrays:
    """A column of keys, of which a share may be all the same, and one of numbers below `KEPT`."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys, rows)
    if skew:
        key[rng.random(rows) < skew] = 0
    return {"k": key, "v": np.arange(rows) % KEPT}


def batches(rows: int, size: int, **shape: Any) -> SourceDef[Any]:
    """Batches of `size` rows from all workers, `rows` in all; each worker emits one repeatedly."""

    def make(index: int, total: int) -> Iterator[Batch]:
        each = rows // size
        return repeat(Batch(arrays(size, seed=index, **shape)), each * (index + 1) // total - each * index // total)

    return SourceDef("batches", processors.generate(make), columnar=True)


def different(rows: int, size: int, **shape: Any) -> SourceDef[Any]:
    """As `batches`, but each is another."""

    def make(index: int, total: int) -> Iterator[Batch]:
        return (Batch(arrays(size, seed=at, **shape)) for at in range(index, rows // size, total))

    return SourceDef("batches", processors.generate(make), columnar=True)


def total_rows(lab: Lab, size: int) -> int:
    """How many rows are read in batches of a size."""
    return min(lab.items * 5, MOST_BATCHES // (1 if lab.items >= 1_000_000 else 8) * size)


def again(fn: Callable[[Arrays], object], rows: int, size: int) -> Callable[[], object]:
    """Return what calls a function of arrays for each batch: by hand."""
    made = arrays(size)

    def run() -> None:
        for _ in range(rows // size):
            fn(made)

    return run


def grouped(made: Arrays) -> object:
    """Count rows and add up values by key, by hand: in a hash table, as any keys need it.

    That is what polars has; without it `bincount` has to do, which knows nothing of keys that are far apart.
    """
    try:
        import polars
    except ImportError:
        return np.bincount(made["k"], made["v"])
    return polars.DataFrame(made).group_by("k").agg(polars.len(), polars.col("v").sum())


MAPPED: dict[str, tuple[Callable[[Stage], Stage], Callable[[Arrays], object]]] = {
    "map_batches": (
        lambda s: s.map_batches(lambda batch: {"v": batch["v"] * 2}),
        lambda a: a["v"] * 2,
    ),
    "filter_batches": (
        lambda s: s.map_batches(lambda batch: batch.filter(batch["v"] < KEPT // 2)),
        lambda a: {name: each[a["v"] < KEPT // 2] for name, each in a.items()},
    ),
    "rows_of_batches": (
        lambda s: s.map(lambda row: row["k"]),
        lambda a: [{"k": k, "v": v}["k"] for k, v in zip(a["k"].tolist(), a["v"].tolist(), strict=True)],
    ),
    "exchange_batches": (
        lambda s: s.rebalance(column("k")).map_batches(lambda batch: batch),
        lambda a: {name: each[np.argsort(a["k"] & 1, kind="stable")] for name, each in a.items()},
    ),
    "group_by": (
        lambda s: s.group_by("k").agg(n=count(), total=sum_("v")),
        lambda a: np.bincount(a["k"], a["v"]),
    ),
    "sort_batches": (
        lambda s: s.custom_transform("sort", processors.sort_batches("k")),
        lambda a: {name: each[np.argsort(a["k"], kind="stable")] for name, each in a.items()},
    ),
}


def sweeps(lab: Lab) -> Iterator[Sweep]:
    """Yield all sweeps of batches."""
    for name, (then, by_hand) in MAPPED.items():
        points = []
        for size in ROWS:
            rows = total_rows(lab, size)
            points.append(Point(f"{size:,} rows", rows, lab.job(then, batches(rows, size)), again(by_hand, rows, size)))
        yield Sweep(f"{name}_rows", points, UNIT)
    yield from kept(lab)
    yield from keyed(lab)
    yield from joins(lab)


def kept(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps over the share of rows, or of batches, that a function lets through."""
    rows = total_rows(lab, 1000)
    points = []
    for share in SHARES:
        keep = lambda s, bound=bounds[share]: s.map_batches(  # noqa: E731
            lambda batch: batch.filter(batch["v"] < bound)
        )
        points.append(Point(f"{share:g}", rows, lab.job(keep, batches(rows, 1000)), kept=share))
    yield Sweep("rows_kept", points, UNIT, kept_limit=True)
    rows = total_rows(lab, 10)
    points = []
    for share in SHARES:
        keep = lambda s, bound=bounds[share]: s.map_batches(  # noqa: E731
            lambda batch: batch if batch["k"][0] < bound else None
        )
        points.append(Point(f"{share:g}", rows, lab.job(keep, different(rows, 10)), kept=share))
    yield Sweep("batches_kept", points, UNIT, kept_limit=True)


def keyed(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps over keys and skew."""
    rows = lab.items * 2
    group, _ = MAPPED["group_by"]
    points = []
    for keys in KEYS:
        made = arrays(rows, keys)
        groups = round(keys * (1 - math.exp(-rows / lab.workers / keys)))  # of one worker, as many as it draws
        points.append(
            Point(
                f"{keys:,}",
                rows + lab.workers * groups,
                lab.job(group, different(rows, 10_000, keys=keys)),
                partial(grouped, made),
            )
        )
    yield Sweep("group_by_keys", points, UNIT)
    points = []
    for skew in (0.0, 0.5, 0.9, 1.0):
        made = arrays(rows, 1000, skew)
        points.append(
            Point(f"{skew:g}", rows, lab.job(group, different(rows, 10_000, skew=skew)), partial(grouped, made))
        )
    yield Sweep("group_by_skew", points, UNIT)


def matched(build: int, how: str) -> Callable[[Arrays], object]:
    """Return what joins a batch by hand with a table of the keys below `build`: none is made where nothing is left."""
    places = np.full(KEPT, -1)
    places[:build] = column = np.arange(build)

    def join(made: Arrays) -> Arrays | None:
        found = places[made["k"]]
        chosen = (found >= 0).nonzero()[0]
        if how == "left":
            return {**made, "w": np.where(found >= 0, found, 0), "known": found >= 0}
        if not len(chosen):
            return None
        taken = made if len(chosen) == len(found) else {name: values[chosen] for name, values in made.items()}
        return taken if how == "semi" else {**taken, "w": column[found[chosen]]}

    return join


def joins(lab: Lab) -> Iterator[Sweep]:
    """Yield the sweeps of hash joins of columns."""

    def joined(rows: int, size: int, keys: int, build: int, how: str) -> Callable[[], float]:
        """Join rows with keys below `keys` with a table of those below `build`."""
        dag = DAG()
        left = dag.new_vertex("left", batches(rows, size, keys=keys).supplier)
        table = {"k": np.arange(build), "w": np.arange(build)}
        right = dag.new_vertex("right", processors.generate(lambda i, n: [Batch(table)] if build else []), 1)
        join = dag.new_vertex(
            "join", processors.hash_join_batches("k", how=how, build_schema={"k": "int64", "w": "int64"})
        )
        dag.edge(between(left, join)).edge(from_(right).to(join, 1).broadcast().priority(-1))
        dag.edge(between(join, dag.new_vertex("sink", processors.noop())))
        return lab.timed(dag)

    for how in ("inner", "left", "semi"):
        rows = total_rows(lab, 1000)
        points = []
        for share in SHARES:
            build = round(share * KEPT)
            by_hand = again(matched(build, how), rows, 1000)
            points.append(Point(f"{share:g}", rows, joined(rows, 1000, KEPT, build, how), by_hand, share))
        yield Sweep(f"hash_join_batches_{how}_kept", points, UNIT, kept_limit=True)
    points = []
    for size in ROWS:
        rows = total_rows(lab, size)
        by_hand = again(lambda a: {name: each[a["k"] >= 0] for name, each in a.items()}, rows, size)
        points.append(Point(f"{size:,} rows", rows, joined(rows, size, KEPT, KEPT, "inner"), by_hand))
    yield Sweep("hash_join_batches_rows", points, UNIT)
    points = []
    for keys in KEYS:
        rows = total_rows(lab, 1000)
        table, found = np.arange(4 * keys), np.random.default_rng(0).integers(0, 4 * keys, rows)
        by_hand = partial(np.take, table, found)
        points.append(Point(f"{keys:,}", rows + keys * lab.workers, joined(rows, 1000, keys, keys, "inner"), by_hand))
    yield Sweep("hash_join_batches_keys", points, UNIT)
