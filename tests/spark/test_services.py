"""Services under `run_on_spark`: made once in a worker process, and closed, however the run ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from shmjet import JobFailedError
from shmjet.pipeline import BatchStage, ServiceFactory
from tests.spark.runner import on_spark

pytestmark = pytest.mark.slow


class Model:
    """Leaves a file when it is made, and gives it another name when it is closed."""

    def __init__(self, folder: str, kind: str) -> None:
        self.name = os.path.join(folder, f"{kind}-{os.getpid()}-{id(self)}")
        with open(self.name, "x"):
            pass

    def times(self, n: int) -> int:
        return 2 * n

    def close(self) -> None:
        os.rename(self.name, f"{self.name}-closed")

    async def aclose(self) -> None:
        self.close()


def left(folder: Path) -> tuple[list[str], list[str]]:
    """Return kind and process of the services that were closed, and the names of the others."""
    names = sorted(path.name for path in folder.iterdir())
    return [name.rsplit("-", 2)[0] for name in names if name.endswith("-closed")], [
        name for name in names if not name.endswith("-closed")
    ]


def model(folder: Path, kind: str, **more: Any) -> ServiceFactory[Model]:
    place = str(folder)
    return ServiceFactory(lambda: Model(place, kind), **more)


def test_every_form_has_one_service_in_a_process_and_closes_it(spark: Any, tmp_path: Path) -> None:
    async def later(service: Model, n: int) -> tuple[int, int]:
        return os.getpid(), service.times(n)

    def build(stage: BatchStage[int]) -> BatchStage[Any]:
        stage = stage.rebalance().map_using_service(model(tmp_path, "map"), lambda service, n: service.times(n))
        stage = stage.filter_using_service(model(tmp_path, "filter"), lambda service, n: service.times(n) % 8 == 0)
        stage = stage.flat_map_using_service(model(tmp_path, "flat"), lambda service, n: [n, service.times(n)])
        stage = (
            stage.rebalance()
            .grouping_key(lambda n: n % 3)
            .map_using_service(model(tmp_path, "keyed"), lambda service, key, n: service.times(n))
        )
        return stage.map_using_service_async(model(tmp_path, "async", destroy=Model.aclose), later)

    found = on_spark(spark, range(2000), build)
    expected = [8 * n * times for n in range(0, 2000, 2) for times in (1, 2)]
    assert sorted(n for _, n in found) == sorted(expected)
    closed, open_ = left(tmp_path)
    assert not open_
    assert len(set(closed)) == len(closed)
    assert {"map", "filter", "flat", "keyed", "async"} == {name.partition("-")[0] for name in closed}
    assert {f"async-{pid}" for pid, _ in found} <= set(closed)


def test_a_service_for_each_processor_is_closed_with_it(spark: Any, tmp_path: Path) -> None:
    factory = model(tmp_path, "own", shared=False)
    found = on_spark(spark, range(100), lambda s: s.map_using_service(factory, lambda service, n: service.times(n)))
    assert sorted(found) == list(range(0, 200, 2))
    closed, open_ = left(tmp_path)
    assert closed
    assert not open_


def test_services_are_closed_when_the_run_fails(spark: Any, tmp_path: Path, eventually: Any) -> None:
    def fails(service: Model, n: int) -> float:
        return 1 / (n - 700)

    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        on_spark(spark, range(1000), lambda s: s.map_using_service(model(tmp_path, "m"), fails))
    eventually(lambda: not left(tmp_path)[1])
    assert left(tmp_path)[0]


def test_what_closing_raises_is_told_and_the_others_are_closed(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(service: Model) -> None:
        service.close()
        raise OSError("no way out")

    def build(stage: BatchStage[int]) -> BatchStage[Any]:
        stage = stage.map_using_service(model(tmp_path, "a"), lambda service, n: service.times(n))
        stage = stage.map_using_service(model(tmp_path, "b", destroy=refuse), lambda service, n: service.times(n))
        return stage.map_using_service(model(tmp_path, "c"), lambda service, n: service.times(n))

    assert sorted(on_spark(spark, range(10), build)) == list(range(0, 80, 8))
    assert not left(tmp_path)[1]
    assert "OSError: no way out" in caplog.text
