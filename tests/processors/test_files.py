from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shmjet import processors
from shmjet.core.context import MetaSupplierContext
from shmjet.processors.files.file_source import FileMetaSupplier
from shmjet.testing import TestGrid, verify_processor

from .driving import Driver


def read(source: Any, count: int = 1, members: int = 1, grid: Any = None) -> list[Any]:
    """Run all processors of a source in turn, a call each, and return their output."""
    source.init(MetaSupplierContext(local_parallelism=count, total_parallelism=count * members))
    suppliers = source.get([f"member-{i}" for i in range(members)])
    drivers: list[Driver] = []
    try:
        for member, supplier in enumerate(suppliers.values()):
            for i, processor in enumerate(pickle.loads(pickle.dumps(supplier)).get(count)):
                index = member * count + i
                drivers.append(Driver(processor, index=index, count=count * members, room=100, grid=grid))
        running = list(drivers)
        while running:
            running = [driver for driver in running if not driver.call(driver.processor.complete)]
    finally:
        for driver in drivers:
            driver.processor.close()
        source.close(None)
    return [item for driver in drivers for item in driver.output]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for i in range(12):
        lines = [f"file {i} line {n}" for n in range(i * i)]
        (tmp_path / f"{i}.txt").write_text("\n".join(lines) + "\n" * (i % 2))
    return tmp_path


def lines_of(folder: Path) -> Counter[str]:
    return Counter(line for path in folder.iterdir() for line in path.read_text().splitlines())


@pytest.mark.parametrize(("count", "members"), [(1, 1), (3, 1), (2, 3), (40, 1)])
@pytest.mark.parametrize("block_size", [1, 100, 4 << 20])
def test_every_line_is_read_once_whatever_the_parallelism_and_block_size(
    corpus: Path, count: int, members: int, block_size: int
) -> None:
    source = processors.read_files(corpus, block_size=block_size)
    assert Counter(read(source, count, members)) == lines_of(corpus)


def test_one_large_file_keeps_all_processors_busy(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_text("".join(f"{n:063}\n" for n in range(100_000)))
    source = processors.read_files(path)
    source.init(MetaSupplierContext(local_parallelism=4, total_parallelism=4))
    supplier = source.get(["here"])["here"]
    drivers = [Driver(processor, index=i, count=4) for i, processor in enumerate(supplier.get(4))]
    running = list(drivers)
    while running:
        running = [driver for driver in running if not driver.call(driver.processor.complete)]
    for driver in drivers:
        driver.processor.close()
    source.close(None)
    shares = [len(driver.output) for driver in drivers]
    assert sum(shares) == 100_000
    blocks = [round(share * 64 / 100_000) for share in shares]  # of 100,000 bytes, each to where a line ends
    assert min(blocks) >= 8  # of 16: none has waited for another one


def test_lines_can_come_with_their_path(corpus: Path) -> None:
    pairs = read(processors.read_files(corpus / "3.txt", with_path=True))
    assert pairs == [(str(corpus / "3.txt"), f"file 3 line {n}") for n in range(9)]


def test_bytes_that_are_no_text_are_replaced_or_fail_as_asked(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"ok\n\xff\n")
    assert read(processors.read_files(tmp_path)) == ["ok", "\ufffd"]
    with pytest.raises(UnicodeDecodeError) as caught:
        read(processors.read_files(tmp_path, errors="strict"))
    assert str(tmp_path / "bad") in caught.value.__notes__[0]


def test_counts_of_files_bytes_and_skipped_files_are_put_into_a_map(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb\n")
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\0")
    grid = TestGrid()
    assert read(processors.read_files(tmp_path, skip_binary=True, stats="stats"), 2, grid=grid) == ["a", "b"]
    stats = grid.get_map("stats")
    assert set(stats) == {0, 1}
    total: Counter[str] = Counter()
    for report in stats.values():
        total.update(report)
    assert total == {"files": 2, "bytes": 4, "skipped": 1}


def test_a_path_that_does_not_exist_is_named_when_the_job_starts(tmp_path: Path) -> None:
    source = processors.read_files(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        source.init(MetaSupplierContext())


def test_wrong_arguments_are_refused_where_the_source_is_made() -> None:
    with pytest.raises(ValueError, match="block_size"):
        processors.read_files("x", block_size=0)
    with pytest.raises(ValueError, match="utf-16"):
        processors.read_files("x", encoding="utf-16")
    with pytest.raises(ValueError, match="no paths"):
        processors.read_files([])


def test_the_source_itself_is_small_and_pickles(corpus: Path) -> None:
    source = pickle.loads(pickle.dumps(processors.read_files([corpus / "1.txt", corpus / "2.txt"])))
    assert isinstance(source, FileMetaSupplier)
    assert source.is_cooperative
    assert len(read(source)) == 5


def test_reading_passes_all_modes_of_verify_processor(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n\nthree")
    verify_processor(processors.read_files(tmp_path / "a")).expect(["one", "two", "", "three"])


def test_a_processor_that_ends_early_closes_its_file(corpus: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    source = processors.read_files(corpus)
    source.init(MetaSupplierContext())
    (processor,) = source.get(["here"])["here"].get(1)
    Driver(processor, room=1).call(processor.complete)
    processor.close()
    source.close(None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_gets_its_name_when_all_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    (processor,) = [processors.write_files(folder, lambda pair: f"{pair[0]}={pair[1]}", encoding="utf-8")()]
    driver = Driver(processor, index=7, count=8)
    driver.feed([("ä", 1), ("b", 2)])
    assert not (folder / "7").exists()
    driver.complete()
    assert (folder / "7").read_bytes() == "ä=1\nb=2\n".encode()
    assert [path.name for path in folder.iterdir()] == ["7"]


def test_an_unfinished_file_is_removed(tmp_path: Path) -> None:
    processor = processors.write_files(tmp_path)()
    Driver(processor).feed([1, 2])
    processor.close()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_without_items_leaves_an_empty_file(tmp_path: Path) -> None:
    verify_processor(processors.write_files(tmp_path)).inputs([]).expect()
    assert (tmp_path / "0").read_bytes() == b""


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_place_of_the_folder_of_a_sink_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    processor = processors.write_files(tmp_path / name)()
    with pytest.raises(OSError, match=rf"there is a file in its place; give another path: '{tmp_path / name}'"):
        Driver(processor).feed([1])
