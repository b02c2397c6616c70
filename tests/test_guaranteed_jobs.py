"""The jobs of `stress/exactly_once.py`: undisturbed they give what their interpreter says, and a fault is noticed."""

from __future__ import annotations

import dataclasses
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shmjet

STRESS = Path(__file__).resolve().parents[1] / "stress"


@pytest.fixture(scope="module")
def jobs() -> Iterator[ModuleType]:
    """The module `stress/_guaranteed_jobs.py`, which is in no package."""
    sys.path.insert(0, str(STRESS))
    yield importlib.import_module("_guaranteed_jobs")
    sys.path.remove(str(STRESS))


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture(scope="module")
def shape(jobs: ModuleType) -> Any:
    return jobs.Shape("items", ("shift",), "rolling", "list", 40, 7, 0.0, 2)


def test_undisturbed_jobs_give_what_the_interpreter_says(
    jobs: ModuleType, shape: Any, jet: Any, tmp_path: Path
) -> None:
    shapes = [dataclasses.replace(shape, source=source) for source in jobs.SOURCES]
    shapes += [dataclasses.replace(shape, steps=(step,)) for step in jobs.STATELESS]
    shapes += [dataclasses.replace(shape, state=state) for state in jobs.STATEFUL]
    shapes += [dataclasses.replace(shape, state="counting", sink=sink) for sink in jobs.SINKS]
    executions = [
        jet.new_job(jobs.pipeline(each, jet, tmp_path, f"guaranteed{number}")).execute()
        for number, each in enumerate(shapes)
    ]
    for number, (each, execution) in enumerate(zip(shapes, executions, strict=True)):
        execution.result(60)
        found = jobs.found_in(each, jet, tmp_path, f"guaranteed{number}")
        for exactly in (True, False):
            assert jobs.complaint(each, found, exactly=exactly) == "", str(each)
        for name in (f"guaranteed{number}", f"guaranteed{number}-in"):
            jet.get_list(name).destroy()
            jet.get_map(name).destroy()


def test_lost_and_doubled_items_are_noticed(jobs: ModuleType, shape: Any) -> None:
    wanted = jobs.expected(shape)
    assert jobs.complaint(shape, wanted[:-1], exactly=True)
    assert jobs.complaint(shape, [*wanted, wanted[0]], exactly=True)
    assert jobs.complaint(shape, [*wanted, wanted[0]], exactly=False) == ""
    most = max(value for _, value in wanted)
    assert jobs.complaint(shape, [pair for pair in wanted if pair[1] < most], exactly=False)
    in_order = dataclasses.replace(shape, state="sort")
    assert jobs.complaint(in_order, jobs.expected(in_order)[::-1], exactly=True)


def test_a_seed_gives_the_same_job_again(jobs: ModuleType) -> None:
    assert jobs.random_shape(random.Random(7)) == jobs.random_shape(random.Random(7))
