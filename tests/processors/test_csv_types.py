"""CSV files with columns of types that numpy has not: decimals, instants, categories; against Python's own."""

from __future__ import annotations

import datetime
import decimal
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, BatchError, JetConfig, JetInstance, JobFailedError, Pipeline, sinks, sources
from shmjet.pipeline import SinkDef
from shmjet.processors import write_files
from tests.examples import examples


@pytest.fixture(scope="module", autouse=True)
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1)) as instance:
        INSTANCES.append(instance)
        yield instance
        INSTANCES.clear()


def results_of(source: Any, sink: Any = None) -> list[Any]:
    """Return what a source gives, and write it to a sink, if there is one."""
    pipeline = Pipeline()
    stage = pipeline.read_from(source)
    if sink is not None:
        stage.write_to(sink)
    with sinks.collect() as results:
        stage.write_to(results)
        try:
            INSTANCES[0].new_job(pipeline).run(60)
        except JobFailedError as error:
            if isinstance(error.cause, BatchError):
                raise error.cause from None
            raise
        return list(results)


def read(path: Path, kind: Any, **options: Any) -> list[Any]:
    """Return the values of a file of one column."""
    options.setdefault("nulls", ("NA",))
    batches = results_of(sources.csv(path, {"v": kind}, as_=Batch, **options))
    assert all(str(batch.schema["v"]) == str(kind) for batch in batches)
    return [value for batch in batches for (value,) in batch.tuples()]


INSTANCES: list[JetInstance] = []

DIGITS = st.text("0123456789", max_size=22)


@examples(25)
@given(st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", "."]), DIGITS, st.integers(1, 38), st.data())
@example("", "9" * 16, ".", "99", 18, None)
@example("-", "9" * 17, ".", "99", 18, None)
@example("", "0" * 30 + "1", ".", "5" + "0" * 20, 5, None)
@example("", "", ".", "", 5, None)
@example("-", "0", "", "", 1, None)
@example("", "1" * 18, ".", "", 18, None)
def test_decimals_are_read_exactly_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, sign: str, whole: str, point: str, part: str, precision: int, data: Any
) -> None:
    text = sign + whole + point + part
    scale = 2 if data is None else data.draw(st.integers(0, precision))
    scale = min(scale, precision)
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(f"v\n1\nNA\n {text}\t\n" if precision > scale else f"v\n0\nNA\n {text}\t\n")
    kind = f"decimal({precision}, {scale})"
    try:
        expected = Decimal(text)
        with decimal.localcontext(prec=99):
            is_held = expected == expected.quantize(Decimal(1).scaleb(-scale))
            is_held &= abs(expected) < Decimal(10) ** (precision - scale)
    except decimal.InvalidOperation:
        is_held = False
    if is_held:
        assert read(path, kind)[1:] == [None, expected]
    else:
        with pytest.raises(BatchError, match=r"v"):
            read(path, kind)


def test_what_is_no_decimal_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text, words in (("1e3", "line 3"), ("abc", "line 3"), ("1.234", "finer"), ("99999", "does not fit")):
        path.write_text(f"v\n1.5\n{text}\n")
        with pytest.raises(BatchError, match=words):
            read(path, "decimal(5, 2)")


def test_instants_are_read_in_utc(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("v\n2024-07-01T10:00:00Z\nNA\n2024-01-01 10:00:00.5Z\n")
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    expected = [
        datetime.datetime(2024, 7, 1, 12, tzinfo=berlin),
        None,
        datetime.datetime(2024, 1, 1, 11, 0, 0, 500_000, tzinfo=berlin),
    ]
    assert read(path, "timestamp[us, Europe/Berlin]") == expected
    assert read(path, "timestamp[us, UTC]") == expected
    path.write_text("v\n2024-07-01T10:00:00\n")
    assert read(path, "timestamp[us, UTC]") == [datetime.datetime(2024, 7, 1, 10, tzinfo=datetime.UTC)]
    with pytest.raises(BatchError, match="timestamp"):  # the time of day in which zone?
        read(path, "timestamp[us, Europe/Berlin]")


def test_categories_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('v\na\n"NA"\nNA\n"b,c"\n')
    assert read(path, "category") == ["a", "NA", None, "b,c"]


def test_types_that_a_field_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match="list<int64>"):
        sources.csv(tmp_path / "t.csv", {"v": "list<int64>"}, as_=Batch)


def test_rows_have_them_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("k,v\na,1.50\nb,\n")
    schema = {"k": "category", "v": "decimal(15, 2)"}
    found = results_of(sources.csv(path, schema))
    assert sorted(found, key=repr) == [{"k": "a", "v": Decimal("1.50")}, {"k": "b", "v": None}]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    times = [datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC), None]
    schema = {"m": "decimal(15, 2)", "w": "decimal(38, 3)", "t": "timestamp[us, UTC]", "c": "category"}
    from_text = tmp_path / "t.csv"
    wide = "123456789012345678901234567890.125"
    from_text.write_text(f'm,w,t,c\n-0.50,{wide},2024-10-27T00:30:00Z,"a,b"\n,,,\n')
    source = sources.csv(from_text, schema, as_=Batch)
    results_of(source, SinkDef("out", write_files(str(tmp_path / "out"), format="csv"), 1))
    (path,) = (path for path in (tmp_path / "out").glob("*.csv") if path.stat().st_size)
    assert path.read_text() == f'm,w,t,c\n-0.50,{wide},2024-10-27T00:30:00.000000Z,"a,b"\n,,,\n'
    (batch,) = results_of(sources.csv(path, schema, as_=Batch))
    assert list(batch.tuples()) == [(Decimal("-0.50"), Decimal(wide), times[0], "a,b"), (None,) * 4]
    assert {name: str(kind) for name, kind in batch.schema.items()} == schema
