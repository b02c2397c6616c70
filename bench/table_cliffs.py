"""Stages of columns on data that no other bench has: one key, skew, nulls alone, nearly nothing kept, long text.

    python -m bench.table_cliffs [--rows 1000000] [--cores 2] [--repeat 3] [CASE ...]

Prints for each case the seconds (the best of all repetitions), and how many times those of the regular case of its
stage that is. A case that is more than three times slower for each row is a cliff.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _tables import columns_of, text_files

import shmjet
from shmjet import Batch, JetConfig, JetInstance, Nullable, Pipeline, column, processors, sinks
from shmjet.columns import count, list_, median, min_, n_unique, sum_
from shmjet.pipeline import SourceDef

BATCH_ROWS = 65_536
LETTERS = 1000
"""Of a long text."""

Stages = Callable[[Any, Any], Any]
"""Makes a pipeline of the stage of the rows and of the stage of the small table."""


def batches(files: tuple[tuple[str, str], ...], null: tuple[str, ...], index: int, total: int) -> Iterator[Batch]:
    """Give a processor's share of a table, some of its columns with nulls alone."""
    columns = columns_of(files)
    rows = len(next(iter(columns.values())))
    first, last = (rows * i // total for i in (index, index + 1))
    for at in range(first, last, BATCH_ROWS):
        end = min(at + BATCH_ROWS, last)
        part: dict[str, Any] = {name: values[at:end] for name, values in columns.items()}
        for name in null:
            part[name] = Nullable(part[name], np.zeros(end - at, np.bool_))
        yield Batch(part)


def tables(folder: Path, rows: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """Save all columns; return the files of the large and of the small table."""
    random = np.random.default_rng(17)
    regular = random.integers(0, 1000, rows)
    columns = {
        "k": regular,
        "one": np.zeros(rows, np.int64),
        "skew": np.where(random.random(rows) < 0.9, 0, regular),
        "many": random.permutation(rows),
        "v": random.integers(0, 1000, rows) / 4,
    }
    large = {name: str(folder / f"{name}.npy") for name in columns}
    for name, values in columns.items():
        np.save(large[name], values)
    few = rows // 20
    texts = [f"{number % 1000:04}" for number in range(few)]
    short = {"short": texts}
    long = {"long": [text * (LETTERS // 4) for text in texts]}
    found = {"large": tuple(large.items())}
    for name, written in (*short.items(), *long.items()):
        files = text_files(folder, name, "s", written)
        found[name] = tuple(files.items())
    np.save(folder / "small.npy", np.arange(1000))
    found["small"] = (("k", str(folder / "small.npy")), ("w", str(folder / "small.npy")))
    return found


def grouped(key: str, **aggregates: Any) -> Stages:
    """Return groups by a key."""
    return lambda rows, small: rows.group_by(key).agg(**(aggregates or {"total": sum_("v"), "n": count()}))


def joined(key: str) -> Stages:
    """Return how many rows have a match in the small table."""
    return lambda rows, small: rows.join(small, left_on=key, right_on="k").group_by().agg(n=count(), w=sum_("w"))


def distinct(key: str) -> Stages:
    """Return how many values a column has."""
    return lambda rows, small: rows.distinct(key).group_by().agg(n=count())


def kept(condition: Any) -> Stages:
    """Return a sum over rows that a filter keeps."""
    return lambda rows, small: rows.filter(condition).select(x=column("v") * 2).group_by().agg(x=sum_("x"))


CASES: dict[str, tuple[str, str, tuple[str, ...], Stages]] = {
    "group": ("", "large", (), grouped("k")),
    "group, one key": ("group", "large", (), grouped("one")),
    "group, skew": ("group", "large", (), grouped("skew")),
    "group, null keys": ("group", "large", ("k",), grouped("k")),
    "group, null values": ("group", "large", ("v",), grouped("k")),
    "group, every key once": ("group", "large", (), grouped("many")),
    "median": ("", "large", (), grouped("k", m=median("v"))),
    "median, one key": ("median", "large", (), grouped("one", m=median("v"))),
    "median, skew": ("median", "large", (), grouped("skew", m=median("v"))),
    "median, every key once": ("median", "large", (), grouped("many", m=median("v"))),
    "n_unique": ("", "large", (), grouped("k", u=n_unique("v"))),
    "n_unique, one key": ("n_unique", "large", (), grouped("one", u=n_unique("v"))),
    "n_unique, every key once": ("n_unique", "large", (), grouped("many", u=n_unique("v"))),
    "list": ("", "large", (), grouped("k", u=list_("v"))),
    "list, one key": ("list", "large", (), grouped("one", u=list_("v"))),
    "list, every key once": ("list", "large", (), grouped("many", u=list_("v"))),
    "join": ("", "large", (), joined("k")),
    "join, one key": ("join", "large", (), joined("one")),
    "join, skew": ("join", "large", (), joined("skew")),
    "join, null keys": ("join", "large", ("k",), joined("k")),
    "join, few matches": ("join", "large", (), joined("many")),
    "distinct": ("", "large", (), distinct("k")),
    "distinct, one key": ("distinct", "large", (), distinct("one")),
    "distinct, null keys": ("distinct", "large", ("k",), distinct("k")),
    "distinct, every key once": ("distinct", "large", (), distinct("many")),
    "filter": ("", "large", (), kept(column("k") < 500)),
    "filter, one row": ("filter", "large", (), kept(column("many") == 7)),
    "filter, nothing": ("filter", "large", (), kept(column("k") < 0)),
    "filter, null": ("filter", "large", ("k",), kept(column("k") < 500)),
    "text": ("", "short", (), grouped("s", n=count(), least=min_("s"))),
    "text, 1000 letters": ("text", "long", (), grouped("s", n=count(), least=min_("s"))),
    "text distinct": ("", "short", (), distinct("s")),
    "text distinct, 1000 letters": ("text distinct", "long", (), distinct("s")),
}
"""Name → its regular case, table, columns of nulls alone, stages."""


def run(jet: JetInstance, files: dict[str, tuple[tuple[str, str], ...]], name: str) -> float:
    """Return the seconds that a case takes."""
    _, table, null, stages = CASES[name]
    pipeline = Pipeline()
    made: list[Any] = [
        pipeline.read_from(
            SourceDef(each, processors.generate(functools.partial(batches, files[each], empty)), columnar=True)
        )
        for each, empty in ((table, null), ("small", ()))
    ]
    with sinks.collect() as results:
        stages(*made).write_to(results)
        if "join" not in name:
            made[1].write_to(sinks.noop())
        begun = time.perf_counter()
        jet.new_job(pipeline).run(600)
        return time.perf_counter() - begun


def main() -> int:
    """Run the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names that cases begin with")
    arguments = parser.parse_args()
    chosen = [name for name in CASES if name.startswith(tuple(arguments.cases) or "")]
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, shmjet.new_instance(JetConfig(cores=arguments.cores)) as jet:
        files = tables(Path(folder), arguments.rows)
        for name in chosen:
            best[name] = min(run(jet, files, name) for _ in range(arguments.repeat))
            regular = best.get(CASES[name][0] or name, 0.0)
            ratio = f"{best[name] / regular:8.1f} x" if regular else ""
            print(f"{name:<32}{best[name]:8.3f} s{ratio}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
