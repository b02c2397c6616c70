"""The client's end of `shmjet.spark.sink`, without Spark: who may ask, when, and what happens to the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from shmjet import ShmjetError
from shmjet.spark.back.schemas import Column
from shmjet.spark.back.sink_client import ask
from shmjet.spark.back.sinks import BEGIN, COMMIT, Destination, SparkSinkSupplier
from shmjet.spark.back.writer_options import WriterOptions
from shmjet.spark.errors import SparkError


class Session:
    """Reads nothing, and notes what it was to read."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    @property
    def read(self) -> Session:
        return self

    def schema(self, struct: Any) -> Session:
        return self

    def parquet(self, *paths: str) -> Any:
        self.asked.append([os.path.basename(path) for path in paths])


class Told(WriterOptions):
    """Writes nothing, or fails."""

    def write(self, frame: Any) -> None:
        if self.mode == "error":
            raise RuntimeError("there is something already")


@pytest.fixture
def session() -> Session:
    return Session()


def supplier_of(session: Session, folder: Path, mode: str = "append") -> SparkSinkSupplier:
    writing = Told("out", "parquet", mode, None, (), ())
    return SparkSinkSupplier(Destination(session, None, (Column("n", "int64"),), writing, folder))


@pytest.fixture
def execution() -> Iterator[Future[None]]:
    future: Future[None] = Future()
    yield future
    future.cancel()


def test_however_many_stages_ask_for_it_a_run_is_written_once(
    session: Session, execution: Future[None], tmp_path: Path
) -> None:
    supplier = supplier_of(session, tmp_path)
    supplier.on_client(execution)
    supplier.on_client(execution)
    address = supplier.address
    folder = Path(ask(address, BEGIN))
    assert Path(ask(address, BEGIN)) == folder
    for name in ("part-00000-a.parquet", "part-00000-b.parquet"):
        (folder / name).touch()
    assert [ask(address, COMMIT), ask(address, COMMIT)] == ["", ""]
    assert session.asked == [["part-00000-a.parquet", "part-00000-b.parquet"]]
    execution.set_result(None)
    assert not folder.exists()
    with pytest.raises(SparkError, match="does not answer"):
        ask(address, COMMIT)


def test_a_write_that_failed_is_no_success_for_whoever_asks_next(
    session: Session, execution: Future[None], tmp_path: Path
) -> None:
    supplier = supplier_of(session, tmp_path, "error")
    supplier.on_client(execution)
    (Path(ask(supplier.address, BEGIN)) / "part-00000-a.parquet").touch()
    for _ in range(2):
        with pytest.raises(SparkError, match="there is something already"):
            ask(supplier.address, COMMIT)


def test_the_next_execution_may_begin_before_the_callbacks_of_the_last_one_have_run(
    session: Session, execution: Future[None], tmp_path: Path
) -> None:
    supplier = supplier_of(session, tmp_path)
    first: Future[None] = Future()
    first.add_done_callback(lambda _: supplier.on_client(execution))
    supplier.on_client(first)
    with pytest.raises(ShmjetError, match=r"shmjet.spark.sink\(\): the execution before is still running"):
        supplier.on_client(Future())
    before = ask(supplier.address, BEGIN)
    first.set_result(None)
    assert ask(supplier.address, BEGIN) != before
    assert os.listdir(tmp_path) == [os.path.basename(ask(supplier.address, BEGIN))]


def test_where_tasks_may_be_done_again_only_the_files_that_are_named_count(session: Session, tmp_path: Path) -> None:
    opened = supplier_of(session, tmp_path).on_spark(session)
    for name in ("a", "b", "left behind"):
        (Path(opened.folder) / f"{name}.parquet").touch()
    opened.count(["b.parquet"])
    opened.count(iter(["a.parquet"]))
    opened.commit()
    assert session.asked == [["a.parquet", "b.parquet"]]
    opened.close()
