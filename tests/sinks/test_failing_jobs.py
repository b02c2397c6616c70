"""What each sink has published when the job fails after the sink has had all its items; the pages say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import Batch, JobFailedError, Pipeline, processors, sinks, sources
from shmjet.pipeline.definitions import SinkDef


def of(supplier: Any) -> SinkDef[Any]:
    return SinkDef("processor", supplier, 1)


def failing(jet: shmjet.JetInstance, sink: Any, folder: Path, eventually: Any, items: Any = range(4)) -> None:
    """Run a job whose other branch fails when all processors of the sink have ended."""
    p = Pipeline()
    p.read_from(sources.items(items)).write_to(sink)

    def fill(_: Any, buffer: Any) -> None:
        if (folder / "go").exists():
            raise ValueError("the other branch")

    p.read_from(sources.builder("other", lambda _: None).fill_buffer_fn(fill).build()).write_to(sinks.noop())
    execution = jet.new_job(p).execute()
    name = next(vertex.name for vertex in p.to_dag() if vertex.name.startswith(sink.name))

    def has_ended() -> bool:
        vertex = execution.metrics().vertices.get(name)
        return vertex is not None and all(processor.state == "end" for processor in vertex.processors)

    eventually(has_ended)
    (folder / "go").touch()
    with pytest.raises(JobFailedError, match="the other branch"):
        execution.result(60)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("make", [sinks.files, sinks.json, sinks.csv])
def test_sinks_of_files_leave_nothing(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any, make: Any) -> None:
    out = tmp_path / "out"
    failing(jet, make(out), tmp_path, eventually, [{"user": 1}])
    eventually(lambda: names(out) == [])


def test_files_of_single_processors_stay(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    for number, (writer, item) in enumerate(
        [(processors.write_files, 1), (processors.write_npy, Batch({"a": [1, 2]}))]
    ):
        folder = tmp_path / str(number)
        failing(jet, of(writer(folder / "out")), folder_made(folder), eventually, [item])
        assert len(names(folder / "out")) == 1
        assert not any(name.startswith(".") for name in names(folder / "out"))


def folder_made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_lists_and_maps_keep_what_was_written(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    failing(jet, sinks.list("kept"), folder_made(tmp_path / "a"), eventually)
    failing(jet, sinks.list("kept"), folder_made(tmp_path / "b"), eventually)
    assert sorted(jet.get_list("kept")) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    for attempt in "cd":
        failing(jet, sinks.map("kept", str, str), folder_made(tmp_path / attempt), eventually)
    assert len(jet.get_map("kept")) == 4  # the same keys, so nothing twice
