"""Tables of awkward values from a random generator, in every form in which batches may carry them.

A table is a list of rows, a dict each, and the kind of each column. `cuts` gives the same rows as batches that are cut
anywhere, with batches without rows between them, integers as narrow as they can be, and rubbish under nulls. Polars and
DuckDB get the same rows.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import polars

from shmjet import Batch, Text

VALUES: dict[str, list[Any]] = {
    "int8": [0, 1, -1, 127, -128],
    "uint8": [0, 1, 2, 127, 255],
    "int32": [0, 1, -1, 2, 2**31 - 1, -(2**31)],
    "uint32": [0, 1, 2, 2**31, 2**32 - 1],
    "int64": [0, 1, -1, 2, 5, 2**53 + 1, 2**63 - 1, -(2**63), 2**62],
    "uint64": [0, 1, 2**63, 2**64 - 1, 2**63 + 1, 7],
    "float32": [0.0, -0.0, 1.0, 0.5, -1.0, math.nan, math.inf, 2.0**31, float(np.float32(0.1))],
    "float64": [0.0, -0.0, 1.0, -1.5, 0.1, math.nan, math.inf, -math.inf, 1e300, 5e-324, 2.0**53],
    "bool": [True, False],
    "text": ["", "a", "ab", "a\0b", "\0", "Zürich", "😀", "\uffff", "x" * 300, "x" * 300 + "y", "NA", " a", 'q"u,o'],
    "date": [datetime.date(*day) for day in ((1, 1, 1), (1969, 12, 31), (2024, 2, 29), (9999, 12, 31))],
    "second": [datetime.datetime(*time) for time in ((1, 1, 1), (1969, 12, 31, 23, 59, 59), (2024, 2, 29, 12))],
    "microsecond": [
        datetime.datetime(*time)
        for time in ((1, 1, 1), (1969, 12, 31, 23, 59, 59, 999999), (2024, 2, 29, 12), (9999, 12, 31, 23, 59, 59, 1))
    ],
}
DTYPES = {"date": "datetime64[D]", "second": "datetime64[s]", "microsecond": "datetime64[us]"}
DATABASE_TYPES: dict[str, tuple[str, Any]] = {
    "int8": ("TINYINT", polars.Int8),
    "uint8": ("UTINYINT", polars.UInt8),
    "int32": ("INTEGER", polars.Int32),
    "uint32": ("UINTEGER", polars.UInt32),
    "int64": ("BIGINT", polars.Int64),
    "uint64": ("UBIGINT", polars.UInt64),
    "float32": ("FLOAT", polars.Float32),
    "float64": ("DOUBLE", polars.Float64),
    "bool": ("BOOLEAN", polars.Boolean),
    "text": ("VARCHAR", polars.String),
    "date": ("DATE", polars.Date),
    "second": ("TIMESTAMP", polars.Datetime("us")),
    "microsecond": ("TIMESTAMP", polars.Datetime("us")),
}
INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
NUMBERS = (*INTEGERS, *FLOATS, "bool")
SHAPES = ("few", "one", "distinct", "all")
"""How the values of a column repeat."""

# Starts the threads of polars, which no test may leave behind.
polars.DataFrame({"k": [1], "v": [1.0]}).group_by("k").agg(polars.col("v").sum()).rows()


def values_of(rng: random.Random, kind: str, count: int, shape: str, nulls: float) -> list[Any]:
    """Return values of a kind, some of them None.

    Args:
        rng: what decides.
        kind: one of `VALUES`.
        count: of values.
        shape: one of `SHAPES`.
        nulls: share of None, from 0 to 1.
    """
    some = VALUES[kind]
    if shape == "one":
        some = [rng.choice(some)]
    elif shape == "few":
        some = rng.sample(some, min(3, len(some)))
    found = [rng.choice(some) for _ in range(count)]
    if shape == "distinct" and kind in ("int64", "text", "float64"):
        found = list(range(count)) if kind == "int64" else list(map(str if kind == "text" else float, range(count)))
        rng.shuffle(found)
    return [None if rng.random() < nulls else value for value in found]


class Table:
    """Rows of columns of known kinds.

    Args:
        kinds: name → kind of each column, in order.
        columns: name → values, all of one number.
        is_typed: batches have the dtypes of the kinds. Else integers may be narrower, and text without rows be of any.
    """

    def __init__(
        self, kinds: Mapping[str, str], columns: Mapping[str, Sequence[Any]], *, is_typed: bool = False
    ) -> None:
        self.kinds = dict(kinds)
        self._is_typed = is_typed
        rows = zip(*(columns[name] for name in kinds), strict=True)
        self.rows: list[dict[str, Any]] = [dict(zip(kinds, row, strict=True)) for row in rows]

    @property
    def schema(self) -> dict[str, str]:
        """Name → type as the schemas of shmjet name it."""
        return {name: DTYPES.get(kind, kind) for name, kind in self.kinds.items()}

    # -- as batches --------------------------------------------------------------------------------------------------

    def batch(self, rows: Sequence[dict[str, Any]], *, narrow: bool = False, rng: random.Random | None = None) -> Batch:
        """Return rows as a batch.

        Args:
            rows: of the table.
            narrow: integers are of the narrowest type that holds those of the batch.
            rng: chooses what lies under nulls; None: a value that is often there.
        """
        columns: dict[str, Any] = {}
        masks: dict[str, Any] = {}
        for name, kind in self.kinds.items():
            values = [row[name] for row in rows]
            masks[name] = np.array([value is not None for value in values], np.bool_)
            under = [VALUES[kind][0]] if rng is None else VALUES[kind]
            filled = [(rng.choice(under) if rng else under[0]) if value is None else value for value in values]
            dtype = DTYPES.get(kind, kind)
            if narrow and kind in INTEGERS and any(masks[name]):
                known = [value for value in values if value is not None]
                dtype = str(np.result_type(np.min_scalar_type(min(known)), np.min_scalar_type(max(known))))
                dtype = kind if dtype not in INTEGERS or (kind[0] == "i" and dtype == "uint64") else dtype
                filled = [0 if value is None else value for value in values]
            if kind == "text":
                columns[name] = Text.of(filled) if self._is_typed else filled
            else:
                columns[name] = np.array(filled, dtype)
        return Batch(columns, masks)

    def cuts(self, rng: random.Random, *, empty: bool = True) -> dict[str, list[Batch]]:
        """Return the rows as batches in several ways, by name.

        Args:
            rng: chooses where random cuts are.
            empty: a table without rows is a batch without rows; False: in some of the ways there is no batch at all.
        """
        rows = self.rows
        if not rows:
            none = self.batch([])
            return {"one empty batch": [none], "empty batches": [none, none]} | ({} if empty else {"nothing": []})
        random_cuts = sorted(rng.choices(range(len(rows) + 1), k=rng.randint(1, 6)))
        pieces = [rows[a:b] for a, b in zip([0, *random_cuts], [*random_cuts, len(rows)], strict=True)]
        return {
            "one batch": [self.batch(rows)],
            "rows of one": [self.batch([row], rng=rng) for row in rows],
            "random cuts": [self.batch(piece, rng=rng) for piece in pieces],
            "threes": [self.batch(rows[at : at + 3], narrow=not self._is_typed) for at in range(0, len(rows), 3)],
        }

    # -- for others ---------------------------------------------------------------------------------------------------

    def in_polars(self) -> polars.DataFrame:
        """Return the rows as a frame."""
        return polars.DataFrame(
            [
                polars.Series(name, [row[name] for row in self.rows], DATABASE_TYPES[kind][1])
                for name, kind in self.kinds.items()
            ]
        )

    def put_into(self, database: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make a table of the rows in a database."""
        columns = ", ".join(f"{column} {DATABASE_TYPES[kind][0]}" for column, kind in self.kinds.items())
        database.execute(f"CREATE TABLE {name} ({columns})")
        if self.rows:
            marks = ", ".join("?" for _ in self.kinds)
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", [list(row.values()) for row in self.rows])

    def __repr__(self) -> str:
        return f"{self.kinds}: {[tuple(row.values()) for row in self.rows]!r}"


def random_table(rng: random.Random, kinds: Mapping[str, str], size: int, *, number: str | None = None) -> Table:
    """Return a table of awkward values.

    Args:
        rng: what decides.
        kinds: name → kind.
        size: of rows.
        number: name of a further column that counts the rows from 0.
    """
    columns: dict[str, Iterable[Any]] = {
        name: values_of(rng, kind, size, rng.choice(SHAPES), rng.choice((0.0, 0.0, 0.2, 1.0)))
        for name, kind in kinds.items()
    }
    if number is not None:
        kinds = {**kinds, number: "int64"}
        columns[number] = range(size)
    return Table(kinds, {name: list(values) for name, values in columns.items()})


def plain(value: Any) -> Any:
    """Return a value in a form that equals itself and is the same for -0.0 and 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
