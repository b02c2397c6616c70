"""What a failure says, and what comes of it at the client."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import threading
import traceback
from pathlib import Path
from types import ModuleType

import cloudpickle
import msgspec
import pytest

import shmjet
from shmjet.core import JobFailedError, PlanError
from shmjet.execution.failure import make_failure, member_failed, to_exception
from shmjet.ring.arena import ArenaError


def test_what_a_member_cannot_do_has_its_error_as_the_cause_and_blames_no_worker() -> None:
    for cause in (PlanError("no member is there"), ArenaError(28, "no shared memory")):
        failure = msgspec.structs.replace(member_failed(cause), member="10.0.0.2:5701")
        error = to_exception(failure, member="10.0.0.1:5701", job="'far'")
        assert isinstance(error, JobFailedError)
        assert str(error).startswith(
            f"job 'far' failed (member 10.0.0.2:5701, pid {os.getpid()}): {type(cause).__name__}\n"
        )
        assert type(error.cause) is type(cause)
        assert str(error.cause) == str(cause)
        assert error.member == "10.0.0.2:5701"


def test_what_a_processor_raised_names_its_worker() -> None:
    failure = make_failure(ValueError("no"), vertex="v", processor_index=3, worker=1)
    error = to_exception(failure, member="10.0.0.1:5701", job="'near'")
    assert str(error).startswith(f"job 'near' failed in vertex 'v', processor 3 (worker 1, pid {os.getpid()}): Value")


def module_at(file: Path, source: str) -> ModuleType:
    """Write a module and import it from there, as its owner would."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("its_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "place",
    [
        "shmjet/job.py",
        "shmjet/shmjet/job.py",
        "shmjet/execution/failure.py",
        "myshmjet/job.py",
        "cloudpickle/job.py",
        "a folder with \"quotes\" and 'more'/jöb.py",
    ],
)
def test_a_users_frames_are_shown_wherever_the_file_lies(tmp_path: Path, place: str) -> None:
    module = module_at(tmp_path / place, "def parse(x):\n    return int(x)\n")
    with pytest.raises(ValueError, match="invalid literal") as caught:
        module.parse("two")
    frames = make_failure(caught.value, vertex="v", processor_index=0, worker=0).frames
    assert [(frame.file, frame.function) for frame in frames][1:] == [(str(tmp_path / place), "parse")]


def test_frames_of_the_engine_and_of_the_pickler_are_not_shown() -> None:
    for fail in (lambda: cloudpickle.dumps(threading.Lock()), lambda: shmjet.Batch({"a": [1], "b": []})):
        with pytest.raises((TypeError, shmjet.BatchError)) as caught:
            fail()
        assert len(traceback.extract_tb(caught.value.__traceback__)) > 2
        frames = make_failure(caught.value, vertex="v", processor_index=0, worker=0).frames
        assert {frame.file for frame in frames} == {__file__}


def test_a_restartable_error_says_that_nothing_is_restarted() -> None:
    failure = make_failure(shmjet.RestartableError("the broker is gone"), vertex="v", processor_index=0, worker=0)
    text = str(to_exception(failure, member="here", job="'j'"))
    assert text.endswith("RestartableError: the broker is gone")


def test_source_files_are_not_read_where_there_is_no_memory(tmp_path: Path) -> None:
    """The file may be read for ever there."""
    module = module_at(tmp_path / "job.py", "def fill():\n    return bytes(1 << 62)\n")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    lines, free = [], []
    for limited in (False, True):
        with pytest.raises(MemoryError) as caught:
            module.fill()
        try:
            if limited:
                resource.setrlimit(resource.RLIMIT_AS, (1 << 20, limits[1]))
                with contextlib.suppress(MemoryError):
                    while True:  # what is left of the heap
                        free.append(bytearray(1 << 20))
            failure = make_failure(caught.value, vertex="v", processor_index=0, worker=0)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
        lines.append([frame.source for frame in failure.frames if frame.function == "fill"])
    assert lines == [["return bytes(1 << 62)"], [""]]
