"""Joins of columns: which rows of two awkward tables meet, by polars and DuckDB.

Rows are told apart by a number, so the pairs that a join gives are compared as they are, and then the values that they
carry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars

from shmjet import DAG, Batch, columns, from_, processors
from shmjet.core import Processor
from shmjet.core.edge import Edge
from shmjet.processors.general.base import Supply
from shmjet.processors.general.generate import ItemsProcessor
from tests.columns.awkward import DATABASE_TYPES, FLOATS, INTEGERS, NUMBERS, Table, plain, random_table
from tests.columns.differences import NAN_MATCHES_NOTHING, NUMBERS_ARE_EXACT, Expected

PAIRS = (
    *[(one, two) for one in NUMBERS for two in NUMBERS],
    *[("text", "text"), ("date", "date"), ("second", "second"), ("second", "microsecond"), ("microsecond", "second")]
    * 8,
)
"""Kinds of a key on both sides."""

SIGNED = {"int8", "int32", "int64"}
COMMON = tuple(
    pair
    for pair in PAIRS
    if not ({*pair} & {"uint64", "int64"} and {*pair} & {*FLOATS}) and not ("uint64" in pair and {*pair} & SIGNED)
)
"""Those whose values one kind holds exactly, as right and outer joins need it."""


def source(batches: list[Batch]) -> Callable[[], Processor]:
    """Return a source of these batches, each processor a run of them; the harnesses need one without meta-supplier."""
    return Supply(ItemsProcessor, tuple(batches))


class JoinCase:
    """Two tables and a join of them.

    Args:
        seed: of everything random.
    """

    is_ordered = False

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.how = rng.choice(("inner", "left", "semi", "anti", "right", "outer"))
        self.is_full = self.how in ("right", "outer")
        """Key columns hold keys of both sides."""
        keys = rng.choice((1, 1, 2, 3))
        self.pairs = [rng.choice(COMMON if self.is_full else PAIRS) for _ in range(keys)]
        is_one_name = rng.random() < 0.5
        self.left = [f"k{at}" for at in range(keys)]
        self.right = self.left if is_one_name else [f"r{at}" for at in range(keys)]
        self.on: Any = self.left if is_one_name else dict(zip(self.left, self.right, strict=True))
        self.probe = self._table(rng, self.left, 0, "p", "pn")
        self.build = self._table(rng, self.right, 1, "b", "bn")
        self.suffix = rng.choice((None, "_right"))
        if self.suffix is not None or self.how in ("semi", "anti"):  # a column of one name on both sides
            self.build = _renamed(self.build, "b", "p")
        self.has_schema = rng.random() < 0.5 or self.is_full
        self.is_partitioned = rng.random() < 0.5 or self.is_full
        self.batch_rows = rng.choice((1, 3, 1000))

    def _table(self, rng: random.Random, names: list[str], side: int, value: str, number: str) -> Table:
        kinds = {name: pair[side] for name, pair in zip(names, self.pairs, strict=True)}
        return random_table(rng, kinds | {value: rng.choice(tuple(DATABASE_TYPES))}, _size(rng), number=number)

    def __repr__(self) -> str:
        return f"{self.how} join on {self.on} of {self.probe} with {self.build}"

    def jobs(self) -> Iterator[tuple[str, DAG]]:
        """Give the join of the tables in all cuts."""
        builds = list(self.build.cuts(self.rng, empty=not self.has_schema).items())
        for at, (name, probe) in enumerate(self.probe.cuts(self.rng).items()):
            other, build = builds[at % len(builds)]
            yield f"{name} with {other}", self._dag(probe, build)

    def _dag(self, probe: list[Batch], build: list[Batch]) -> DAG:
        schema = self.build.schema if self.has_schema else None
        joining = processors.hash_join_batches(
            self.on,
            how=self.how,
            suffix=self.suffix,
            build_schema=schema,
            stream_schema=self.probe.schema if self.has_schema else None,
            batch_rows=self.batch_rows,
        )
        dag = DAG()
        left = dag.new_vertex("probe", source(probe), self.rng.choice((1, 2)))
        right = dag.new_vertex("build", source(build), self.rng.choice((1, 2)))
        joined = dag.new_vertex("joined", joining)
        sink = dag.new_vertex("sink", processors.write_list("out"), 1)
        to_joined: Edge = from_(left).to(joined, 0)
        to_table: Edge = from_(right).to(joined, 1).priority(-1)
        if self.is_partitioned:
            to_joined = to_joined.partitioned(columns(*self.left)).distributed()
            to_table = to_table.partitioned(columns(*self.right)).distributed()
        else:
            to_table = to_table.broadcast().distributed()
        return dag.edge(to_joined).edge(to_table).edge(from_(joined).to(sink))

    @property
    def streamed(self) -> tuple[str, ...]:
        """Columns of the results that have the dtypes of the batches they came in."""
        return tuple(self.probe.kinds)

    # -- what others make of them ------------------------------------------------------------------------------------

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give the rows that DuckDB and polars find."""
        yield "DuckDB", self._rows(self._in_duckdb())
        yield "polars", self._rows(self._in_polars())

    def _rows(self, pairs: list[tuple[int | None, int | None]]) -> Expected:
        names = [name for name in self.build.kinds if name not in self.right]
        keys = dict(zip(self.left, self.right, strict=True))
        rows = []
        for left, right in pairs:
            found = None if right is None else self.build.rows[right]
            own = {} if left is None else self.probe.rows[left]
            values = {name: own.get(name) for name in self.probe.kinds}
            for at, (name, other) in enumerate(keys.items() if self.is_full else ()):
                key = found[other] if left is None and found is not None else own[name]
                values[name] = self._common(at, key)
            row = tuple(map(plain, values.values()))
            if self.how not in ("semi", "anti"):
                row += tuple(None if found is None else plain(found[name]) for name in names)
            rows.append(row)
        return Expected(rows)

    def _common(self, at: int, key: Any) -> Any:
        """Return a key of either side as the kind that holds both."""
        kinds = {*self.pairs[at]}
        if key is None or not kinds <= {*NUMBERS} or kinds == {"bool"}:
            return key
        return float(key) if kinds & {*FLOATS} else int(key)

    def _in_duckdb(self) -> list[tuple[int | None, int | None]]:
        with duckdb.connect(config={"threads": 1}) as database:
            self.probe.put_into(database, "probe")
            self.build.put_into(database, "build")
            same = " AND ".join(self._equal_in_duckdb(at) for at in range(len(self.pairs)))
            if self.how in ("semi", "anti"):
                found = database.execute(f"SELECT pn, NULL FROM probe {self.how} JOIN build ON {same}").fetchall()
            else:
                how = "FULL" if self.how == "outer" else self.how
                found = database.execute(f"SELECT pn, bn FROM probe {how} JOIN build ON {same}").fetchall()
        return found

    def _equal_in_duckdb(self, at: int) -> str:
        """Return the comparison of a pair of keys: exact, where DuckDB would round integers to floats."""
        left, right = f"probe.{self.left[at]}", f"build.{self.right[at]}"
        one, two = self.pairs[at]
        floats = [name for name, kind in ((left, one), (right, two)) if kind in FLOATS]
        text = f"{left} = {right}"
        if len(floats) == 1 and {one, two} & set(INTEGERS) and NUMBERS_ARE_EXACT:
            (name,) = floats
            other = left if name == right else right
            whole = f"(isfinite({name}) AND abs({name}) < 1e20 AND trunc({name}) = {name})"
            text = f"(CASE WHEN {whole} THEN {name}::HUGEINT = {other}::HUGEINT ELSE FALSE END)"
        elif "bool" in (one, two) and one != two:
            kind = DATABASE_TYPES[two if one == "bool" else one][0]
            text = f"{left}::{kind} = {right}::{kind}"
        if NAN_MATCHES_NOTHING:
            text = " AND ".join([text, *(f"NOT isnan({name})" for name in floats)])
        return f"({text})"

    def _in_polars(self) -> list[tuple[int | None, int | None]]:
        probe, build = self.probe.in_polars(), self.build.in_polars()
        names = []
        for at, (one, two) in enumerate(self.pairs):
            names.append(f"id{at}")
            probe = probe.with_columns(self._identity(self.left[at], one, two).alias(names[-1]))
            build = build.with_columns(self._identity(self.right[at], two, one).alias(names[-1]))
        if self.how in ("semi", "anti"):
            found = probe.join(build, on=names, how="semi" if self.how == "semi" else "anti")
            return [(at, None) for at in found["pn"]]
        how: Any = "full" if self.how == "outer" else self.how
        found = probe.select("pn", *names).join(build.select("bn", *names), on=names, how=how)
        return found.select("pn", "bn").rows()

    def _identity(self, name: str, kind: str, other: str) -> polars.Expr:
        """Return a key as what is equal on both sides exactly when the values are."""
        column = polars.col(name)
        if kind in FLOATS and NAN_MATCHES_NOTHING:
            column = polars.when(column.is_nan()).then(None).otherwise(column)
        if kind in FLOATS and other in FLOATS:
            return column.cast(polars.Float64)
        if kind in FLOATS and other != "bool":
            is_whole = column.is_finite() & (column.abs() < 1e20) & (column.floor() == column)
            return polars.when(is_whole).then(column).otherwise(None).cast(polars.Int128)
        if kind in NUMBERS and other in (*INTEGERS, *FLOATS, "bool"):
            return column.cast(
                polars.Float64 if "bool" in (kind, other) and {kind, other} & set(FLOATS) else polars.Int128
            )
        return column


def _size(rng: random.Random) -> int:
    return rng.choice((0, 1, 2, 10, 40))


def _renamed(table: Table, old: str, new: str) -> Table:
    kinds = {new if name == old else name: kind for name, kind in table.kinds.items()}
    return Table(kinds, {new if n == old else n: [row[n] for row in table.rows] for n in table.kinds})
