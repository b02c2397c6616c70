"""Files of awkward rows: CSV and JSON lines as awkward as their grammars allow, and npy, read and written.

CSV is also read by polars and by DuckDB, JSON by Python's own module, arrays by numpy.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import polars

from shmjet import DAG, Batch, between, processors, sinks, sources
from shmjet.pipeline import Pipeline
from tests.columns.awkward import DATABASE_TYPES, Table, plain, random_table
from tests.columns.differences import Expected
from tests.columns.oracle_joins import source
from tests.pipeline.running import list_sink

CSV_KINDS: Final = ("int8", "uint8", "int64", "uint64", "float64", "bool", "text", "date", "second", "microsecond")
NPY_KINDS: Final = ("int8", "uint32", "int64", "uint64", "float32", "float64", "bool", "date", "second")
JSON_VALUES: Final = (
    *("0", "-0", "1e2", "1E-2", "-1.5", "1e308", "18446744073709551615", "-9223372036854775808"),
    *("123456789012345678901234567890", "-99999999999999999999999", "true", "false", "null", '""', '"a"'),
    *(
        '"\\u00e9"',
        '"\\ud83d\\ude00"',
        '"é😀"',
        '"\\/\\b\\f\\n\\r\\t\\"\\\\"',
        '"\\u0000"',
        '"\\u2028\u2028"',
        "[]",
        "{}",
    ),
    *("[1, [2, [3, null]], {}]", '{"x": {"y": [{"z": "\\u0041"}]}}', '[1.5 , "a",\tnull]', '{"": 0, "a b": [ ]}'),
)
BAD_JSON: Final = ('{"k": }', '{"k": 1', "[1,]", "{'k': 1}", '{"k": "\n', "nul", '{"k": 01}', '"\\x"', "{} {}", "null")
MOST: Final = 40


class FileCase:
    """A file, or several, and a job that reads them.

    Args:
        seed: of everything random.
    """

    is_ordered = False
    folder: Path | None = None

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.form = self.rng.choice(("csv", "csv", "json", "json", "npy", "csv and back"))
        self.size = self.rng.choice((0, 1, 2, 10, MOST))
        self.streamed: tuple[str, ...] = ()
        self._expected: list[tuple[str, Expected]] = []
        self._text = b""

    def __repr__(self) -> str:
        return f"{self.form} {self._text!r}"

    def jobs(self) -> Iterator[tuple[str, Any]]:
        """Write the files and give the jobs that read them."""
        assert self.folder is not None, "files need a folder"
        made: Any = {"csv": self._csv, "json": self._json, "npy": self._npy, "csv and back": self._csv_and_back}
        yield from made[self.form](self.folder)

    def expected(self) -> Iterator[tuple[str, Expected]]:
        """Give what others read."""
        return iter(self._expected)

    # -- CSV -----------------------------------------------------------------------------------------------------------

    def _csv(self, folder: Path) -> Iterator[tuple[str, Pipeline]]:
        rng = self.rng
        kinds = {f"c{at}": rng.choice(CSV_KINDS) for at in range(rng.randint(2, 4))}
        table = random_table(rng, kinds, self.size)
        end, skips = rng.choice(("\n", "\r\n")), rng.random() < 0.5
        lines, bad = [",".join(kinds)], 0
        for row in table.rows:
            if rng.random() < 0.1:
                bad += 1
                lines.append(rng.choice(("1", ",".join("abcde"), '"a"x' + "," * (len(kinds) - 1))))
            lines.append(",".join(self._field(kinds[name], value) for name, value in row.items()))
        text = ("\ufeff" if rng.random() < 0.2 else "") + end.join(lines) + rng.choice(("", end))
        self._text = text.encode()
        path = folder / "a.csv"
        path.write_bytes(self._text)
        for size in (1, 7, 1000):
            reading = sources.csv(
                str(path), table.schema, as_=Batch, batch_rows=size, on_bad_line="skip" if skips else "error"
            )
            yield f"batches of {size}", _into_list(reading)
        rows = [tuple(map(plain, row.values())) for row in table.rows]
        if bad and not skips:
            self._expected.append(("the grammar", Expected(error=f"{path}, line ")))
            return
        self._expected.append(("what was written", Expected(rows)))
        if not bad and rows:
            self._expected += [("DuckDB", self._by_duckdb(path, table)), ("polars", self._by_polars(path, table))]

    def _field(self, kind: str, value: Any) -> str:
        """Return a value as a field, quoted where that is needed, and now and then where not."""
        if value is None:
            return ""
        if kind == "text":
            must = value in ("", "NA") or value != value.strip() or any(each in value for each in ',"\r\n\0')
            return '"' + value.replace('"', '""') + '"' if must or self.rng.random() < 0.3 else value
        if kind == "bool":
            return self.rng.choice(("true", "True", "TRUE") if value else ("false", "False", "FALSE"))
        if kind in ("second", "microsecond"):
            return str(value.isoformat(self.rng.choice("T ")))
        return repr(value) if kind == "float64" else str(value)

    def _by_duckdb(self, path: Path, table: Table) -> Expected:
        types = ", ".join(f"'{name}': '{DATABASE_TYPES[kind][0]}'" for name, kind in table.kinds.items())
        query = f"FROM read_csv('{path}', header=true, quote='\"', escape='\"', columns={{{types}}}, "
        query += "allow_quoted_nulls=false)"
        with duckdb.connect(config={"threads": 1}) as database:
            return Expected([tuple(map(plain, row)) for row in database.execute(query).fetchall()])

    def _by_polars(self, path: Path, table: Table) -> Expected:
        """Read numbers and text; polars knows fewer forms of the rest, so these come from what was written."""
        theirs = {n: DATABASE_TYPES[kind][1] for n, kind in table.kinds.items() if kind in (*_PLAIN, "text")}
        read = polars.read_csv(path, schema_overrides=dict.fromkeys(table.kinds, polars.String) | theirs)
        rows = []
        for at, row in enumerate(read.rows(named=True)):
            known = table.rows[at]
            rows.append(tuple(plain(row[n] if n in theirs and known[n] != "" else known[n]) for n in table.kinds))
        return Expected(rows)

    def _csv_and_back(self, folder: Path) -> Iterator[tuple[str, list[Pipeline]]]:
        """Write batches in all cuts by shmjet, and read the files again by shmjet and by DuckDB."""
        rng = self.rng
        kinds = {f"c{at}": rng.choice(CSV_KINDS) for at in range(rng.randint(2, 4))}
        table = random_table(rng, kinds, max(self.size, 1))
        for at, (name, batches) in enumerate(table.cuts(rng).items()):
            out = folder / f"out-{at}"
            writing = Pipeline()
            writing.read_from(sources.items(batches)).write_to(sinks.csv(str(out)))
            yield name, [writing, _into_list(sources.csv(str(out), table.schema, as_=Batch))]
        self._expected.append(("what was written", Expected([tuple(map(plain, r.values())) for r in table.rows])))

    # -- JSON ----------------------------------------------------------------------------------------------------------

    def _json(self, folder: Path) -> Iterator[tuple[str, Pipeline]]:
        rng = self.rng
        lines, bad = [], 0
        for _ in range(self.size):
            if rng.random() < 0.02:
                line = rng.choice(BAD_JSON)
                bad += 1
            else:
                keys = rng.sample(("k", "v", "w", "é"), rng.randint(0, 4))
                pairs = (f'"{key}"{rng.choice((":", " : "))}{rng.choice(JSON_VALUES)}' for key in keys)
                line = rng.choice(("", "  ")) + "{" + ", ".join(pairs) + "}" + rng.choice(("", " \t"))
            lines.append(line)
            if rng.random() < 0.1:
                lines.append(rng.choice(("", "  ")))
        end = rng.choice(("\n", "\r\n"))
        self._text = (end.join(lines) + rng.choice(("", end))).encode()
        path = folder / "a.json"
        path.write_bytes(self._text)
        reading = Pipeline()
        reading.read_from(sources.json(str(path))).map(_shown).write_to(list_sink("out"))
        yield "lines", reading
        packed = folder / "a.json.gz"
        import gzip

        packed.write_bytes(gzip.compress(self._text))
        unpacking = Pipeline()
        unpacking.read_from(sources.json(str(packed))).map(_shown).write_to(list_sink("out"))
        if not bad:  # the text of an error names the file
            yield "packed lines", unpacking
            values = [json.loads(line) for line in lines if line.strip()]
            self._expected.append(("Python", Expected([(_shown(value)["json"],) for value in values])))
        else:
            self._expected.append(("Python", Expected(error=f"{path}, line ")))

    # -- npy -----------------------------------------------------------------------------------------------------------

    def _npy(self, folder: Path) -> Iterator[tuple[str, DAG | list[DAG]]]:
        rng = self.rng
        kinds = {f"c{at}": rng.choice(NPY_KINDS) for at in range(rng.randint(1, 4))}
        table = random_table(rng, kinds, self.size)
        table = Table(kinds, {n: [r[n] for r in table.rows if None not in r.values()] for n in kinds}, is_typed=True)
        batch = table.batch(table.rows)
        records = np.empty(batch.num_rows, [(n, batch.schema[n]) for n in kinds])
        for name in kinds:
            records[name] = batch[name]
        np.save(folder / "a.npy", records)
        self._text = repr(table).encode()
        for size in (1, 7, 1000):
            yield f"batches of {size}", _dag(processors.read_npy(str(folder / "a.npy"), batch_rows=size))
        for at, (name, batches) in enumerate(table.cuts(rng).items()):
            out = folder / f"out-{at}"
            dag = DAG()
            writing = dag.new_vertex("write", processors.write_npy(str(out)), 1)
            dag.edge(between(dag.new_vertex("source", source(batches), 1), writing))
            yield f"written as {name}", [dag, _dag(processors.read_npy(f"{out}/*.npy"))]
        self._expected.append(("numpy", Expected([tuple(map(plain, row.values())) for row in table.rows])))


_PLAIN: Final = ("int8", "uint8", "int64", "uint64", "float64")


def _shown(value: Any) -> dict[str, str]:
    """Return a value of JSON as text that tells 1 from 1.0 and from True."""
    return {"json": repr(value)}


def _into_list(reading: Any) -> Pipeline:
    pipeline = Pipeline()
    pipeline.read_from(reading).write_to(list_sink("out"))
    return pipeline


def _dag(reading: Any) -> DAG:
    dag = DAG()
    return dag.edge(between(dag.new_vertex("read", reading), dag.new_vertex("sink", processors.write_list("out"), 1)))
