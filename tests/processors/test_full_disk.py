"""A full disk is an error that names the file that was being written."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, Processor, processors
from shmjet.processors.files.file_blocks import UNFINISHED
from shmjet.processors.files.new_file import path_in_errors
from shmjet.processors.files.paths import Folder
from shmjet.processors.files.record_sink import RecordSinkProcessor, RecordWriteOptions

from .driving import Driver, processors_of

LINES = ["x" * 5000] * 10
BATCHES = [Batch({"n": np.arange(10_000)})]


@pytest.mark.parametrize(
    ("name", "make", "items"),
    [
        ("0", lambda folder: processors.write_files(folder), LINES),
        ("0", lambda folder: processors.write_files(folder), ["short"]),  # found when the file is closed
        ("0.csv", lambda folder: processors.write_files(folder, format="csv"), BATCHES),
        ("0.npy", lambda folder: processors.write_npy(folder), BATCHES),
        ("0.npy", lambda folder: processors.write_npy(folder), [Batch({"n": np.arange(10)})]),
    ],
)
def test_sinks_name_their_file(
    tmp_path: Path, name: str, make: Callable[[Path], Callable[[], Processor]], items: list[Any]
) -> None:
    (tmp_path / f".{name}{UNFINISHED}").symlink_to("/dev/full")
    driver = Driver(processors_of(make(tmp_path))[0])
    with pytest.raises(OSError, match="No space left on device") as full:
        driver.feed(items)
        driver.complete()
    assert full.value.errno == errno.ENOSPC
    assert str(full.value.filename).startswith(str(tmp_path))
    driver.processor.close()
    assert list(tmp_path.iterdir()) == []


def test_sinks_of_records_name_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "open_new", lambda self, name: open("/dev/full", "wb"))  # noqa: SIM115
    writing = RecordWriteOptions("lines", "utf-8", str, None, ",", '"', True, "", None)
    for items in (LINES, ["short"]):
        driver = Driver(RecordSinkProcessor(Folder(str(tmp_path), {}), writing))
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/0") as full:
            driver.feed(items)
            driver.complete()
        assert full.value.errno == errno.ENOSPC
        driver.processor.close()


def test_an_error_that_names_a_file_or_has_no_number_stays_as_it_is() -> None:
    for error in (OSError("odd"), FileNotFoundError(errno.ENOENT, "not there", "/else"), ValueError("else")):
        with pytest.raises(type(error)) as caught, path_in_errors("/here"):
            raise error
        assert caught.value is error
    assert pickle.loads(pickle.dumps(OSError(errno.ENOSPC, "full", "/here"))).filename == "/here"
