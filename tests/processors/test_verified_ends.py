"""Sources and sinks in all modes of `verify_processor`, with snapshots and restores, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import processors, sinks, sources
from shmjet.data.batch import Batch
from shmjet.processors.general.base import Supply
from shmjet.processors.grid.merge_sink import WriteMergingProcessor
from shmjet.testing import TestGrid, verify_processor


def test_items_and_generators() -> None:
    verify_processor(processors.read_items(range(9))).expect(range(9))
    verify_processor(processors.generate(lambda index, count: (n for n in range(9)))).expect(range(9))
    verify_processor(sources.items("abcdefgh", partitions=3, key=str).supplier).any_order().expect("abcdefgh")


def test_maps_and_lists() -> None:
    grid = TestGrid()
    grid.get_list("given").extend(range(9))
    verify_processor(processors.read_list("given")).context(grid=grid).expect(range(9))


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A call ends when its time is over, also when it has only passed rows that were emitted before a restore.
    monkeypatch.setattr("shmjet.processors.files.file_reader.monotonic", lambda: 0.0)
    lines = [f"line {n}" for n in range(12)]
    (tmp_path / "a").write_text("\n".join(lines))
    verify_processor(processors.read_files(tmp_path, block_size=30)).any_order().expect(lines)
    verify_processor(sources.files(tmp_path / "a").supplier).any_order().expect(lines)
    as_batches = processors.read_files(tmp_path / "a", as_=Batch, batch_rows=2, block_size=30)
    verify_processor(as_batches).any_order().expect([Batch({"line": lines})])
    (tmp_path / "t.csv").write_text("n,s\n" + "".join(f'{n},"{n}\n"\n' for n in range(12)))
    csv = processors.read_files(
        tmp_path / "t.csv", as_=Batch, format="csv", schema={"n": "int64", "s": "text"}, batch_rows=2, block_size=20
    )
    rows = Batch({"n": np.arange(12), "s": [f"{n}\n" for n in range(12)]})
    verify_processor(csv).any_order().without_progress_check().expect([rows])
    np.save(tmp_path / "n.npy", np.arange(30))
    verify_processor(processors.read_npy(tmp_path / "n.npy", batch_rows=4)).any_order().expect(
        [Batch({"value": np.arange(30)})]
    )


@pytest.mark.parametrize("kind", ["files", "write_files"])
def test_sinks_of_files(tmp_path: Path, kind: str) -> None:
    sink: Any = sinks.files(tmp_path).supplier if kind == "files" else processors.write_files(tmp_path)
    verify_processor(sink).inputs("abc").expect()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_sinks_of_maps_and_lists() -> None:
    grid = TestGrid()
    verify_processor(processors.write_list("out")).inputs("abcd").context(grid=grid).expect()
    assert len(grid.get_list("out")) % 4 == 0
    verify_processor(processors.write_map("map")).inputs([("a", 1), ("b", 2)]).context(grid=grid).expect()
    assert grid.get_map("map") == {"a": 1, "b": 2}
    verify_processor(sinks.observable("seen").supplier).inputs("abcd").context(grid=grid).expect()
    assert len(grid.open_observable("seen")) % 4 == 0
    merging = Supply(WriteMergingProcessor, "sums", lambda old, new: old + new)
    verify_processor(merging).inputs([("a", 1), ("b", 2)] * 3).context(grid=grid).expect()
    sums = grid.get_map("sums")
    assert sums["a"] % 3 == 0
    assert sums["b"] == 2 * sums["a"]


class Position:
    def __init__(self, context: Any) -> None:
        self.at = 0

    def fill(self, buffer: Any) -> None:
        buffer.add_all(range(self.at, min(self.at + 2, 10)))
        self.at = min(self.at + 2, 10)
        if self.at == 10:
            buffer.close()

    def restore(self, states: list[int]) -> None:
        (self.at,) = states


def test_built_ends() -> None:
    source = (
        sources.builder("numbers", Position)
        .fill_buffer_fn(Position.fill)
        .create_snapshot_fn(lambda position: position.at)
        .restore_snapshot_fn(Position.restore)
        .build()
    )
    verify_processor(source.supplier).expect(range(10))
    sink = sinks.builder("sink", lambda context: []).receive_fn(list.append).commit_fn(list.clear).build()
    verify_processor(sink.supplier).inputs("abc").expect()
