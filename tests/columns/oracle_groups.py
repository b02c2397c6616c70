"""Groups of columns, and what polars and DuckDB make of the same rows.

Where a column is mixed, integers, floats and bools together, no reference has such a column: the outcomes of all ways
are compared with each other, and the keys with those of Python.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars

from shmjet import Batch, sources
from shmjet.columns import count, custom, max_, mean, median, min_, n_unique, quantile, std, sum_, var
from shmjet.pipeline import Pipeline
from tests.columns.awkward import FLOATS, NUMBERS, SHAPES, Table, values_of
from tests.columns.differences import SUMS_ARE_CHECKED, Expected
from tests.pipeline.running import list_sink

KINDS = ("int64", "uint64", "float64", "bool", "text", "date", "int8", "uint32", "float32", "microsecond")
MIXED: list[Any] = [0, 1, True, 0.5, -0.0, 2**53 + 1, 2.0**53, 2**63, -1, math.nan]
EXACT: list[Any] = [0, -1, 2**63, 2.0**63, True, -1.0, 2**60, 3]
"""Of which floats hold all, and no other type does: an error unless there is a float."""


class GroupCase:
    """A table, grouped by some of its columns or by none.

    Args:
        seed: of everything random.
    """

    is_ordered = False

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.seed = seed
        self.keys = ["k", "l", "m"][: rng.choice((0, 1, 1, 1, 2, 3))]
        kinds = {name: rng.choice((*KINDS, "mixed", "exact") if name in "kv" else KINDS) for name in (*self.keys, "v")}
        self.is_mixed = not set(kinds.values()) <= set(KINDS)
        size = rng.choice((0, 1, 2, 10, 60))
        columns = {}
        for name, kind in kinds.items():
            nulls = rng.choice((0.0, 0.0, 0.2, 1.0 if name == "v" else 0.5))
            if kind in KINDS:
                columns[name] = values_of(rng, kind, size, rng.choice(SHAPES), nulls)
            else:
                some = MIXED if kind == "mixed" else EXACT
                some = rng.sample(some, rng.randint(1, len(some)))
                columns[name] = [None if rng.random() < nulls else rng.choice(some) for _ in range(size)]
        self.table = Table(kinds, columns)
        self.aggregates = {"n": count(), "filled": count("v"), "least": min_("v"), "most": max_("v")}
        self.is_number = kinds["v"] in NUMBERS or kinds["v"] not in KINDS
        if self.is_number:
            self.aggregates |= {"sum": sum_("v"), "mean": mean("v"), "var": var("v")}
        if not self.is_mixed and rng.random() < 0.7:
            self.aggregates["unique"] = n_unique("v")
            if self.is_number:
                self.aggregates |= {"std": std("v", ddof=0), "median": median("v"), "q": quantile("v", 0.3)}
            if rng.random() < 0.3:
                self.aggregates["rows"] = custom(_rows)
        if rng.random() < 0.1 and self.keys:  # distinct rows
            self.aggregates = {}
        self.folder: Path | None = None

    def __repr__(self) -> str:
        return f"group by {self.keys} {list(self.aggregates)} of {self.table}"

    # -- in shmjet -----------------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[tuple[str, Pipeline]]:
        """Give the grouping of rows, of batches in all cuts and of a file."""
        rows = self.table.rows
        yield "rows", self._grouped(sources.items(rows))
        if self.is_mixed:
            yield "rows of one", self._grouped(sources.items([Batch.from_rows([row]) for row in rows]))
            mixed = list(rows)
            self.rng.shuffle(mixed)
            yield "shuffled rows", self._grouped(sources.items(mixed))
            batches = [Batch.from_rows([row]) for row in reversed(rows)]
            yield "the same from the end", self._grouped(sources.items(batches))
            return
        for name, batches in self.table.cuts(self.rng).items():
            yield name, self._grouped(sources.items(batches))
        texts = [value for row in rows for value in row.values() if isinstance(value, str)]
        if self.folder is not None and rows and not any("\0" in text or text in ("", "NA") for text in texts):
            path = self.folder / f"{self.seed}.csv"
            lines = [",".join(self.table.kinds), *(",".join(map(_csv, row.values())) for row in rows)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            yield "CSV", self._grouped(sources.csv(str(path), as_=Batch, schema=self.table.schema))

    def _grouped(self, source: Any) -> Pipeline:
        pipeline = Pipeline()
        pipeline.read_from(source).group_by(*self.keys).agg(**self.aggregates).write_to(list_sink("out"))
        return pipeline

    # -- in others -----------------------------------------------------------------------------------------------------

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give nothing where a column is mixed; `compare` looks at the keys then."""
        return iter(())

    def compare(self, outcome: tuple[str, Any]) -> None:
        """Compare groups with DuckDB's and polars', values with those of the library that agrees with the promise."""
        kind, content = outcome
        assert kind != "fault", content
        assert "#" not in str(content), "an internal name has reached the user"
        if self.is_mixed:
            self._compare_mixed(kind, content)
            return
        if not self.table.rows:  # NO_ROWS_NO_TOTAL
            assert (kind, content) == ("rows", ()), content
            return
        theirs, floats = self._in_duckdb(), self._in_polars()
        if kind == "error":
            assert SUMS_ARE_CHECKED
            assert "leaves" in content, content
            low, high = (0, 2**64) if self.table.kinds["v"] == "uint64" else (-(2**63), 2**63)
            assert not all(row[4] is None or low <= row[4] < high for row in theirs.values()), content
            return
        width = len(self.keys)
        mine = {row[:width]: dict(zip(self.aggregates, row[width:], strict=True)) for row in content}
        assert len(mine) == len(content), "a key is there twice"
        assert mine.keys() == theirs.keys() == floats.keys()
        for key, found in mine.items() if self.aggregates else ():
            self._compare_group(key, found, theirs[key], floats[key])

    def _compare_group(self, key: Any, found: dict[str, Any], exact: list[Any], floats: list[Any]) -> None:
        is_float = self.table.kinds["v"] in FLOATS
        has_sum = self.is_number and not is_float
        names = ("n", "filled", "least", "most", "sum") if has_sum else ("n", "filled", "least", "most")
        for name, value in zip(names, exact, strict=False):
            assert found[name] == value, (key, name, found[name], value)
        assert [found["n"], found["filled"]] == floats[:2], (key, found, floats)
        for name in {"unique", "median", "q"} & {*found}:
            value = exact[-3:][("unique", "median", "q").index(name)] if self.is_number else exact[-1]
            same = found[name] == value or (None not in (found[name], value) and _is_close(found[name], value))
            assert same, (key, name, found[name], value)
        assert found.get("rows", found["n"]) == found["n"]
        if not self.is_number:
            return
        if not found["filled"]:
            assert [found[name] for name in ("sum", "mean", "var")] == [None] * 3, (key, found)
            return
        for name, value in zip(("sum", "mean", "var"), floats[2:], strict=True):
            if not (is_float or name == "mean") or value is None or name == "var":
                continue
            far = value == "NaN" or abs(value) > (1e299 if is_float else 2**62)
            assert far or math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-9), (key, name, found[name], value)
        assert (found["var"] is None) == (found["filled"] == 1), (key, found)
        if "std" in found and found["var"] not in (None, "nan", "inf") and found["filled"] > 1:
            variance = float(found["var"]) * (found["filled"] - 1) / found["filled"]
            assert variance > 1e300 or math.isclose(float(found["std"]), math.sqrt(variance), rel_tol=1e-5), (
                key,
                found,
            )

    def _in_duckdb(self) -> dict[Any, list[Any]]:
        """Group in DuckDB, whose sums of integers are exact and whose minimum and maximum take NaN for greatest."""
        found = [*self.keys, "count(*)", "count(v)", "min(v)", "max(v)"]
        if self.is_number and self.table.kinds["v"] not in FLOATS:
            found.append("sum(v::HUGEINT)")
        found.append("count(distinct v)")
        if self.is_number:
            found += ["quantile_cont(v::DOUBLE, 0.5)", "quantile_cont(v::DOUBLE, 0.3)"]
        keys = ", ".join(self.keys)
        with duckdb.connect(config={"threads": 1}) as database:
            self.table.put_into(database, "t")
            by = f" GROUP BY {keys}" if keys else ""
            rows = database.execute(f"SELECT {', '.join(found)} FROM t{by}").fetchall()
        width = len(self.keys)
        return {tuple(map(rounded, row[:width])): list(map(rounded, row[width:])) for row in rows}

    def _in_polars(self) -> dict[Any, list[Any]]:
        """Group in polars: counts, and sums, means and variances of floats."""
        column = polars.col("v")
        found = [polars.len().alias("n"), column.count().alias("filled")]
        if self.is_number:
            numbers = column.cast(polars.Float64)
            found += [numbers.sum().alias("sum"), numbers.mean().alias("mean"), numbers.var().alias("var")]
        frame = self.table.in_polars()
        rows = (frame.group_by(self.keys).agg(found) if self.keys else frame.select(found)).rows()
        width = len(self.keys)
        return {tuple(map(rounded, row[:width])): list(map(rounded, row[width:])) for row in rows}

    def _compare_mixed(self, kind: str, content: Any) -> None:
        """Hold keys of several kinds of numbers against Python: what no type of a column holds is an error."""
        if len(self.keys) != 1 or self.table.kinds["k"] in KINDS:
            return
        keys = [row["k"] for row in self.table.rows if row["k"] is not None]
        if not _is_held(keys):
            assert kind == "error", f"keys that no column holds are {content}"
        elif self.table.kinds["v"] in KINDS and not (self.is_number and self.aggregates):
            assert kind == "rows", content
        if kind == "rows" and self.aggregates:
            number = float if any(isinstance(key, float) for key in keys) else int
            expected = Counter(None if row["k"] is None else rounded(number(row["k"])) for row in self.table.rows)
            assert dict(expected) == {row[0]: row[1] for row in content}, content


def _is_held(values: list[Any]) -> bool:
    """Tell whether some type of a column holds all numbers exactly."""
    integers = [int(value) for value in values if not isinstance(value, float)]
    if len(integers) < len(values):
        return all(int(float(value)) == value for value in integers)
    return not integers or min(integers) >= 0 or max(integers) < 2**63


def rounded(value: Any) -> Any:
    """Return a value that is equal to itself, and 0.0 for -0.0; a float of a sum with as many digits as are exact."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0 if math.isinf(value) else float(f"{value + 0.0:.12g}") if abs(value) > 1e16 else value + 0.0
    return value


def _is_close(one: Any, two: Any) -> bool:
    is_text = "NaN" in (one, two)
    return one == two if is_text else math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-12) or abs(two) == math.inf


def _rows(group: Batch) -> int:
    return group.num_rows


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value).lower() if isinstance(value, bool | float) else str(value)
