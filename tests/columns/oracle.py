"""Random stages of columns over awkward data, held against polars and DuckDB, and against themselves in other cuts.

A case is made from a seed: rows with a key and a value, which are grouped. It runs from rows, from batches cut anywhere
and from a CSV file, on any number of workers; all outcomes, errors too, have to be the same, and what polars and DuckDB
make of the same rows.
"""

from __future__ import annotations

import datetime
import math
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars

from shmjet import Batch, BatchError, JobFailedError, sources
from shmjet.columns import count, max_, mean, min_, sum_
from shmjet.pipeline import BatchStage, Pipeline

# Starts the threads of polars, which no test may leave behind.
polars.DataFrame({"k": [1], "v": [1.0]}).group_by("k").agg(polars.col("v").sum()).rows()

Run = Callable[[Pipeline, int], list[Any]]
"""Runs a pipeline with one list sink, `out`, on so many workers and returns what came."""

VALUES: dict[str, list[Any]] = {
    "int64": [0, 1, -1, 2, 5, 2**53 + 1, 2**63 - 1, -(2**63), 2**62],
    "uint64": [0, 1, 2**63, 2**64 - 1, 2**63 + 1, 7],
    "float64": [0.0, -0.0, 1.0, -1.5, 0.1, math.nan, math.inf, -math.inf, 1e300, 5e-324, 2.0**53],
    "bool": [True, False],
    "text": ["", "a", "ab", "a\0b", "\0", "Zürich", "😀", "x" * 300, "NA", " a", 'q"u,o'],
    "date": [datetime.date(*day) for day in ((1, 1, 1), (1969, 12, 31), (2024, 2, 29), (9999, 12, 31))],
}
MIXED: list[Any] = [0, 1, True, 0.5, -0.0, 2**53 + 1, 2.0**53, 2**63, -1, math.nan]
DATABASE_TYPES = {
    "int64": ("BIGINT", polars.Int64),
    "uint64": ("UBIGINT", polars.UInt64),
    "float64": ("DOUBLE", polars.Float64),
    "bool": ("BOOLEAN", polars.Boolean),
    "text": ("VARCHAR", polars.String),
    "date": ("DATE", polars.Date),
}
NUMBERS = ("int64", "uint64", "float64", "bool")


class Case:
    """Rows and an operation, from a seed.

    Args:
        seed: of everything random.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        rng = self.rng
        self.kinds = {name: rng.choice([*VALUES, "mixed"]) for name in ("k", "v")}
        size = rng.choice([0, 1, 2, 10, 60])
        shape = rng.choice(["few", "one", "distinct", "all"])
        self.rows = [
            {name: self._value(name, kind, shape if name == "k" else "all", at) for name, kind in self.kinds.items()}
            for at in range(size)
        ]
        nulls = rng.choice([0.0, 0.2, 1.0])
        for row in self.rows:
            for name in row:
                if rng.random() < (nulls if name == "v" or nulls < 1 else 0.5):
                    row[name] = None
        self.aggregates = {"n": count(), "filled": count("v"), "least": min_("v"), "most": max_("v")}
        if self.kinds["v"] in (*NUMBERS, "mixed"):
            self.aggregates |= {"sum": sum_("v"), "mean": mean("v")}

    def _value(self, name: str, kind: str, shape: str, at: int) -> Any:
        some = MIXED if kind == "mixed" else VALUES[kind]
        if kind == "mixed" and name == "k":  # -1 beside 2**63 is an error, but for keys not where floats come first
            some = [value for value in MIXED if value != -1]
        if shape == "one":
            return some[self.seed % len(some)]
        if shape == "few":
            return self.rng.choice(some[:3])
        if shape == "distinct" and kind in ("int64", "text"):
            return at if kind == "int64" else f"{at}"
        return self.rng.choice(some)

    # -- the same rows in other ways -----------------------------------------------------------------------------

    def sources(self, folder: Path | None) -> Iterable[tuple[str, Any]]:
        """Give names and sources: rows, batches in several cuts, and a CSV file in a folder, if that can hold them."""
        yield "rows", sources.items(self.rows)
        if "mixed" in self.kinds.values():
            yield "rows of one", sources.items([Batch.from_rows([row]) for row in self.rows])
            return
        for size in {1, 3, max(1, len(self.rows))}:
            yield f"batches of {size}", sources.items(self._batches(size))
        texts = [value for row in self.rows for value in row.values() if isinstance(value, str)]
        if folder is not None and self.rows and not any("\0" in text or text in ("", "NA") for text in texts):
            path = folder / f"{self.seed}.csv"
            lines = ["k,v", *(",".join(_csv(value) for value in row.values()) for row in self.rows)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            schema = {name: {"date": "datetime64[D]"}.get(kind, kind) for name, kind in self.kinds.items()}
            yield "CSV", sources.csv(str(path), as_=Batch, schema=schema)

    def _batches(self, size: int) -> list[Batch]:
        batches = []
        for at in range(0, len(self.rows), size):
            rows = self.rows[at : at + size]
            columns, masks = {}, {}
            for name, kind in self.kinds.items():
                values = [row[name] for row in rows]
                masks[name] = np.array([value is not None for value in values], np.bool_)
                dtype = {"date": "datetime64[D]"}.get(kind, kind)
                filled = [VALUES[kind][0] if value is None else value for value in values]
                columns[name] = filled if kind == "text" else np.array(filled, dtype)
            batches.append(Batch(columns, masks))
        return batches

    def grouped(self, stage: BatchStage[Any]) -> BatchStage[Any]:
        """Group the rows by their key."""
        return stage.group_by("k").agg(**self.aggregates)

    # -- what others make of them --------------------------------------------------------------------------------

    def in_duckdb(self) -> dict[Any, list[Any]]:
        """Group in DuckDB, whose sums of integers are exact and whose minimum and maximum take NaN for greatest."""
        types = {name: DATABASE_TYPES[kind][0] for name, kind in self.kinds.items()}
        with duckdb.connect(config={"threads": 1}) as database:
            database.execute(f"CREATE TABLE t (k {types['k']}, v {types['v']})")
            if self.rows:
                database.executemany("INSERT INTO t VALUES (?, ?)", [list(row.values()) for row in self.rows])
            found = ["count(*)", "count(v)", "min(v)", "max(v)"]
            if "sum" in self.aggregates and self.kinds["v"] != "float64":
                found.append("sum(v::HUGEINT)")
            rows = database.execute(f"SELECT k, {', '.join(found)} FROM t GROUP BY k").fetchall()
        return {_plain(key): list(map(_plain, results)) for key, *results in rows}

    def in_polars(self) -> dict[Any, list[Any]]:
        """Group in polars: counts, and sums and means of floats."""
        frame = polars.DataFrame(
            {
                name: polars.Series(name, [row[name] for row in self.rows], DATABASE_TYPES[kind][1])
                for name, kind in self.kinds.items()
            }
        )
        found = [polars.len().alias("n"), polars.col("v").count().alias("filled")]
        if self.kinds["v"] == "float64":
            found += [polars.col("v").sum().alias("sum"), polars.col("v").mean().alias("mean")]
        rows = frame.group_by("k").agg(found).rows()
        return {_plain(key): list(map(_plain, results)) for key, *results in rows}


def check(seed: int, run: Run, folder: Path | None = None, workers: Iterable[int] = (1, 2, 4)) -> None:
    """Run a case in all ways, from a file too if there is a folder for it. Raises AssertionError with the seed."""
    from tests.pipeline.running import list_sink

    case = Case(seed)
    outcomes: dict[Any, list[str]] = {}
    for name, source in case.sources(folder):
        for number in workers:
            pipeline = Pipeline()
            case.grouped(pipeline.read_from(source)).write_to(list_sink("out"))
            outcome = _outcome(run, pipeline, number)
            if outcome[0] == "error" and "mixed" in case.kinds.values():  # several values may be wrong: any is named
                outcome = "error", ""
            outcomes.setdefault(outcome, []).append(f"{name} on {number}")
    assert len(outcomes) == 1, f"seed {seed}: {case.kinds}: {case.rows}: {outcomes}"
    (outcome,) = outcomes
    if "mixed" not in case.kinds.values():
        _compare(case, outcome)


def _outcome(run: Run, pipeline: Pipeline, workers: int) -> Any:
    try:
        batches = run(pipeline, workers)
    except (BatchError, JobFailedError) as error:
        cause = error.cause if isinstance(error, JobFailedError) else error
        return "error" if isinstance(cause, BatchError) else "fault", re.sub(r"^.*vertex '[^']*': ", "", str(cause))
    schemas = {str({name: str(kind) for name, kind in batch.schema.items()}) for batch in batches}
    assert len(schemas) <= 1, schemas
    rows = [row for batch in batches for row in batch.tuples()]
    return "rows", tuple(sorted((tuple(map(_plain, row)) for row in rows), key=repr))


def _compare(case: Case, outcome: Any) -> None:
    kind, content = outcome
    names = list(case.aggregates)
    theirs, floats = case.in_duckdb(), case.in_polars()
    where = f"seed {case.seed}: {case.kinds}: {case.rows}"
    assert kind != "fault", where + str(content)
    assert "#" not in str(content), where
    if kind == "error":
        assert "leaves" in content, where + content
        low, high = {"uint64": (0, 2**64), "int64": (-(2**63), 2**63)}[case.kinds["v"]]
        assert not all(row[4] is None or low <= row[4] < high for row in theirs.values()), where
        return
    mine = {row[0]: dict(zip(names, row[1:], strict=True)) for row in content}
    assert mine.keys() == theirs.keys() == floats.keys(), where
    for key, found in mine.items():
        expected = dict(zip(("n", "filled", "least", "most", "sum"), theirs[key], strict=False))
        expected |= {name: value for name, value in zip(names, floats[key], strict=False) if name in ("n", "filled")}
        if case.kinds["v"] == "float64" and found["filled"]:
            expected |= dict(zip(("sum", "mean"), floats[key][2:], strict=True))
        for name, value in expected.items():
            if isinstance(value, float) and isinstance(found[name], float) and name in ("sum", "mean"):
                far = abs(value) > 1e299 or value == "NaN"
                assert far or math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-9), (where, key, name)
            else:
                assert found[name] == value, (where, key, name, found[name], value)


def _plain(value: Any) -> Any:
    """Return a value that is equal to itself, and 0.0 for -0.0; a float of a sum with as many digits as are exact."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0 if math.isinf(value) else float(f"{value + 0.0:.12g}") if abs(value) > 1e16 else value + 0.0
    return value


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value).lower() if isinstance(value, bool | float) else str(value)
