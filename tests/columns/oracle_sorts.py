"""Sorts of columns, and what polars and DuckDB make of the same rows.

Rows are numbered in the order in which they come, so that a sort that is not stable shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import polars

from shmjet import DAG, Batch, from_, processors
from tests.columns.awkward import DATABASE_TYPES, FLOATS, VALUES, plain, random_table
from tests.columns.differences import NAN_IS_LAST, Expected
from tests.columns.oracle_joins import source

VALUES["text"] += ["x" * 40 + end for end in ("", "\0", "a", "b", "é")]  # shared long prefixes


class SortCase:
    """A table that is sorted, in one step or in two.

    Args:
        seed: of everything random.
    """

    is_ordered = True

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names = [f"k{at}" for at in range(rng.choice((1, 1, 2, 3)))]
        kinds = {name: rng.choice(tuple(DATABASE_TYPES)) for name in names} | {"v": rng.choice(tuple(DATABASE_TYPES))}
        self.table = random_table(rng, kinds, rng.choice((0, 1, 2, 10, 60)), number="nr")
        self.by = rng.sample(names, len(names))
        self.descending = [rng.random() < 0.5 for _ in names]
        self.nulls_first = rng.random() < 0.5
        self.limit = rng.choice((None, None, 0, 1, 7, 1000))
        self.in_two_steps = rng.random() < 0.3
        if self.in_two_steps:  # which is not stable
            self.by.append("nr")
            self.descending.append(rng.random() < 0.5)
        self.batch_rows = rng.choice((1, 5, 1000))

    def __repr__(self) -> str:
        how = f"descending {self.descending}, nulls first {self.nulls_first}, limit {self.limit}"
        return f"sort by {self.by}, {how} of {self.table}"

    def jobs(self) -> Iterator[tuple[str, DAG]]:
        """Give the sort of all cuts."""
        for name, batches in self.table.cuts(self.rng).items():
            empty = self.table.batch([])
            yield name, self._dag(batches)
            yield f"{name}, empty ones between", self._dag([each for batch in batches for each in (empty, batch)])

    def _dag(self, batches: list[Batch]) -> DAG:
        flags: Any = self.descending if len(set(self.descending)) > 1 else self.descending[0]
        sorting = processors.sort_batches(
            self.by, descending=flags, nulls_first=self.nulls_first, limit=self.limit, batch_rows=self.batch_rows
        )
        dag = DAG()
        # What is stable keeps the order of one processor, so all batches come from one.
        reading = source(batches) if self.in_two_steps else processors.generate(lambda at, _: [] if at else batches)
        vertex = dag.new_vertex("source", reading, self.rng.choice((1, 2)) if self.in_two_steps else 1)
        if self.in_two_steps:
            first = dag.new_vertex("first", sorting, 3)
            dag.edge(from_(vertex).to(first))
            vertex = first
        last = dag.new_vertex("sort", sorting, 1)
        sink = dag.new_vertex("sink", processors.write_list("out"), 1)
        return dag.edge(from_(vertex).to(last).distributed().all_to_one("all")).edge(from_(last).to(sink))

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give the rows in the order of DuckDB and in that of polars."""
        for name, order in (("DuckDB", self._in_duckdb()), ("polars", self._in_polars())):
            rows = [tuple(map(plain, self.table.rows[at].values())) for at in order]
            yield name, Expected(rows[: self.limit])

    def _in_duckdb(self) -> list[int]:
        nulls = "FIRST" if self.nulls_first else "LAST"
        order = []
        for name, down in zip(self.by, self.descending, strict=True):
            if self.table.kinds[name] in FLOATS and NAN_IS_LAST:
                order.append(f"{name} IS NULL {'DESC' if self.nulls_first else 'ASC'}")
                order.append(f"coalesce(isnan({name}), FALSE)")
            order.append(f"{name} {'DESC' if down else 'ASC'} NULLS {nulls}")
        with duckdb.connect(config={"threads": 1}) as database:
            self.table.put_into(database, "t")
            return [at for (at,) in database.execute(f"SELECT nr FROM t ORDER BY {', '.join(order)}, nr").fetchall()]

    def _in_polars(self) -> list[int]:
        keys, flags = [], []
        for name, down in zip(self.by, self.descending, strict=True):
            column = polars.col(name)
            keys.append(column.is_null())
            flags.append(self.nulls_first)
            if self.table.kinds[name] in FLOATS and NAN_IS_LAST:
                keys.append(column.is_nan().fill_null(False))
                flags.append(False)
            keys.append(column)
            flags.append(down)
        frame = self.table.in_polars().sort([*keys, polars.col("nr")], descending=[*flags, False], maintain_order=True)
        return frame["nr"].to_list()
