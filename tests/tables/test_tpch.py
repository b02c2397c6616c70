"""TPC-H's 22 queries in stages of columns give the answers of duckdb."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance

duckdb = pytest.importorskip("duckdb")
ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.02
"""120,000 line items; at 0.01 some answers are empty."""
MONEY = "decimal(15, 2)"
"""The type of amounts."""
IN_DUCKDB = {"int64": "BIGINT", "float64": "DOUBLE", "text": "VARCHAR", "datetime64[D]": "DATE"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tpch() -> Iterator[Any]:
    """The package `examples/tpch`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        yield importlib.import_module("tpch.answers")
        for name in [name for name in sys.modules if name.split(".")[0] == "tpch"]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tpch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as CSV files."""
    from tpch.tables import generate

    try:
        return Path(generate(tmp_path_factory.mktemp("tpch"), SCALE))
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def database(tpch: Any, folder: Path) -> Iterator[Any]:
    """The same files in duckdb."""
    from tpch.tables import schemas

    with duckdb.connect(config={"threads": 1}) as connection:
        for name, schema in schemas(MONEY).items():
            types = ", ".join(f"'{column}': '{IN_DUCKDB.get(kind, kind)}'" for column, kind in schema.items())
            read = f"read_csv('{folder / name}.csv', header=true, columns={{{types}}})"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {read}")
        yield connection


@pytest.fixture(scope="module")
def instance() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        yield jet


def equal(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, float):
        return isinstance(mine, float) and math.isclose(mine, theirs, rel_tol=1e-12)
    return type(mine) is type(theirs) and bool(mine == theirs)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_gives_the_answer_of_duckdb(
    tpch: Any, folder: Path, database: Any, instance: JetInstance, number: int
) -> None:
    from tpch.sql import SQL

    scale = 0.2 if number == 11 else SCALE  # of which its answer is a fraction
    expected = database.execute(SQL[number].replace("{fraction}", str(0.0001 / scale))).fetchall()
    assert expected, "an answer without rows tests nothing"
    found = [tuple(row) for row in tpch.answer(instance, number, folder, scale, MONEY).tuples()]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs), (mine, theirs)
        assert all(map(equal, mine, theirs)), (mine, theirs)
