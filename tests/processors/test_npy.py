from __future__ import annotations

import io
import mmap
import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet import processors
from shmjet.core.context import MetaSupplierContext
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.files.file_work import FileWork
from shmjet.processors.files.npy_format import make_header, read_header
from shmjet.processors.files.npy_source import rows_at_once

from .driving import Driver
from .test_files import read

RECORDS = np.array(
    [(1, 2.5, "Öl", b"x", "2013-01-31"), (-2, np.nan, "", b"", "NaT")],
    [("id", "i8"), ("price", ">f4"), ("name", "U4"), ("code", "S2"), ("day", "M8[D]")],
)


def save(path: Path, array: Any, **options: Any) -> Path:
    np.save(path, array, **options)
    return path


def written(folder: Path, *batches: Any, index: int = 0) -> Path:
    driver = Driver(processors.write_npy(folder)(), index=index, count=index + 1)
    driver.feed(batches)
    driver.complete()
    return folder / f"{index}.npy"


def test_a_plain_array_is_one_column_of_views(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", np.arange(10, dtype=np.int16))
    batches = read(processors.read_npy(path, column="n", batch_rows=4))
    assert [batch.to_dict() for batch in batches] == [{"n": [0, 1, 2, 3]}, {"n": [4, 5, 6, 7]}, {"n": [8, 9]}]
    assert batches[0].schema == {"n": np.dtype(np.int16)}
    (batch,) = read(processors.read_npy(save(path, np.arange(300_000)), batch_rows=300_000))
    assert not batch["value"].flags.writeable
    assert batch["value"].tolist() == list(range(300_000))
    base = batch["value"]
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_a_structured_array_is_a_column_for_each_field(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", RECORDS)
    (batch,) = read(processors.read_npy(path))
    assert batch.equals(Batch({name: RECORDS[name] for name in RECORDS.dtype.names or ()}))
    (batch,) = read(processors.read_npy(path, columns=["day", "id"]))
    assert batch.names == ("day", "id")


@pytest.mark.parametrize(("count", "members"), [(1, 1), (3, 1), (2, 3), (40, 1)])
def test_processors_share_files_by_rows(tmp_path: Path, count: int, members: int) -> None:
    save(tmp_path / "large.npy", np.arange(10_001))
    save(tmp_path / "small.npy", np.arange(10_001, 10_004))
    save(tmp_path / "empty.npy", np.arange(0))
    (tmp_path / "other.txt").write_text("not read, because it is only in the folder")
    batches = read(processors.read_npy(tmp_path, batch_rows=100), count, members)
    assert sorted(value for batch in batches for value in batch["value"].tolist()) == list(range(10_004))
    assert max(batch.num_rows for batch in batches) == 100


def test_ranges_are_of_whole_batches_and_bounded() -> None:
    files = (("a", 100_000), ("b", 0), ("c", 7))
    units = FileWork((), (), files, "rows", rows_at_once(files, 10, 2)).units()
    assert {unit[0].start % 10 for unit in units} == {0}
    assert max(unit[0].end - unit[0].start for unit in units) == 160
    assert sum(unit[0].end - unit[0].start for unit in units) == 100_007


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((2, 3)), r"one-dimensional array, found one of shape \(2, 3\)"), (np.array(5), "one-dimensional"),
        (np.array([1, "a", None], object), "pickled objects are not read"),
        (np.zeros(2, [("a", "O")]), "pickled objects are not read"), (np.zeros(2, [("a", "i4", (2,))]), "column 'a'"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_columns_are_named(tmp_path: Path, array: Any, what: str) -> None:
    path = save(tmp_path / "bad.npy", array, allow_pickle=True)
    with pytest.raises(BatchError, match=f"{path}: .*{what}"):
        read(processors.read_npy(path))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "expected a .npy array"), (b"PK\3\4....", "expected a .npy array"), (b"\x93NUMPY\x09\0\0\0", "version"),
        (b"\x93NUMPY\1\0", "damaged"), (b"\x93NUMPY\1\0\x05\0{'des", "damaged"), (b"\x93NUMPY\1\0\x02\0[]", "damaged"),
        (make_header(np.dtype("i8"), 3) + bytes(23), "expected 3 rows of 8 bytes, found 23 bytes"),
        (make_header(np.dtype("i8"), 3).replace(b"(3,)", b"(-3,"), "damaged"),
        (make_header(np.dtype("i8"), 3).replace(b"(3,)", b"(-3,)")[:-1], "one-dimensional"),
    ],
)  # fmt: skip
def test_damaged_files_are_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "bad.npy"
    path.write_bytes(content)
    with pytest.raises(BatchError, match=f"{path}: .*{what}"):
        read(processors.read_npy(path))


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", np.arange(10))
    source = processors.read_npy(path)
    original = type(source).get

    def get(self: Any, addresses: Any) -> Any:
        save(path, np.arange(5))
        return original(self, addresses)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source), "get", get)
        with pytest.raises(BatchError, match="expected 10 rows, found 5: it was changed"):
            read(source)


def test_fields_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", RECORDS)
    with pytest.raises(BatchError, match=f"{path}: expected the field 'x', found"):
        read(processors.read_npy(path, columns=["id", "x"]))
    with pytest.raises(BatchError, match="expected fields"):
        read(processors.read_npy(save(tmp_path / "b.npy", np.arange(3)), columns=["id"]))


def test_wrong_arguments_are_refused() -> None:
    for reader in (processors.read_npy, processors.read_npz):
        with pytest.raises(ValueError, match="batch_rows"):
            reader("x", batch_rows=0)
        with pytest.raises(ValueError, match=f"{reader.__name__}: no paths"):
            reader([])
        with pytest.raises(BatchError, match="columns"):
            reader("x", columns=["a", "a"])
        with pytest.raises(FileNotFoundError, match="missing"):
            read(reader("/missing"))
    with pytest.raises(BatchError, match="name"):
        processors.read_npy("x", column="")


@pytest.mark.parametrize("save_npz", [np.savez, np.savez_compressed])
def test_members_of_npz_are_columns(tmp_path: Path, save_npz: Any) -> None:
    values = np.random.default_rng(1).normal(size=10_000)
    save_npz(tmp_path / "a.npz", x=values, n=np.arange(10_000, dtype=">u2"), records=np.resize(RECORDS[:1], 10_000))
    save_npz(tmp_path / "b.npz", x=np.zeros(0), n=np.zeros(0, np.uint16), records=RECORDS[:0])
    batches = read(processors.read_npz(tmp_path, batch_rows=3000), 2)
    assert [batch.num_rows for batch in batches] == [3000, 3000, 3000, 1000]
    whole = Batch.concat(batches)
    assert whole.equals(
        Batch({"x": values, "n": np.arange(10_000, dtype="u2"), "records": np.resize(RECORDS[:1], 10_000)})
    )
    (batch,) = read(processors.read_npz(tmp_path / "a.npz", columns=["n"]))
    assert batch.names == ("n",)


def test_members_that_are_no_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(BatchError, match=f"{path}, member 'b': expected 3 rows as in 'a', found 4"):
        read(processors.read_npz(path))
    with pytest.raises(BatchError, match=f"{path}: expected the member 'c', found"):
        read(processors.read_npz(path, columns=["c"]))
    np.savez(path, a=np.array([None]), allow_pickle=True)
    with pytest.raises(BatchError, match=f"{path}, member 'a': .*pickled"):
        read(processors.read_npz(path))
    path.write_bytes(b"no zip")
    with pytest.raises(BatchError, match=f"{path}: expected a .npz file"):
        read(processors.read_npz(path))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_members_are_named(tmp_path: Path, compression: int) -> None:
    path, member = tmp_path / "bad.npz", io.BytesIO()
    np.save(member, np.random.default_rng(1).integers(0, 2**60, 5000))
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a.npy", member.getvalue())
    content = bytearray(path.read_bytes())
    content[20_000:20_050] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(BatchError, match=f"{path}, member 'a': the file is damaged"):
        read(processors.read_npz(path))
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a.npy", member.getvalue()[:1000])
    with pytest.raises(BatchError, match=f"{path}, member 'a': expected 5000 rows, the file ends before"):
        read(processors.read_npz(path))


def test_sources_pickle_and_close_their_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(100))
    save(tmp_path / "a.npy", np.arange(200_000))
    before = len(os.listdir("/proc/self/fd"))
    for made in (processors.read_npz(tmp_path, batch_rows=7), processors.read_npy(tmp_path, batch_rows=7000)):
        assert sum(batch.num_rows for batch in read(pickle.loads(pickle.dumps(made)), 2)) in (100, 200_000)
        source = pickle.loads(pickle.dumps(made))
        source.init(MetaSupplierContext())
        (processor,) = source.get(["here"])["here"].get(1)
        Driver(processor, room=1).call(processor.complete)
        processor.close()
        source.close(None)
        del processor, source  # with the batches that they still hold
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_written_is_what_numpy_loads(tmp_path: Path) -> None:
    batch = Batch({name: RECORDS[name] for name in RECORDS.dtype.names or ()})
    path = written(tmp_path, batch, batch[:0], batch)
    loaded = np.load(path, allow_pickle=False)
    assert loaded.dtype == RECORDS.dtype.newbyteorder("=")
    assert loaded["name"].tolist() == ["Öl", "", "Öl", ""]
    (back,) = read(processors.read_npy(tmp_path))
    assert back.equals(Batch.concat([batch, batch]))


columns = st.sampled_from(["?", "i1", "u8", "f2", "f8", "c16", "M8[ns]", "m8[h]", "S3", "U2"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    types=st.lists(columns, min_size=1, max_size=5),
    names=st.sampled_from(["abcde", "äöüßé", "日本語文字"]),
    rows=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    seed=st.binary(min_size=1, max_size=50),
)
def test_any_batches_come_back(
    tmp_path_factory: pytest.TempPathFactory, types: list[str], names: str, rows: list[int], seed: bytes
) -> None:
    def column(name: str, count: int) -> Any:
        dtype = np.dtype(name)
        raw = np.frombuffer((seed * (count * dtype.itemsize + 1))[: count * dtype.itemsize], np.uint8)
        if name in ("?", "U2"):
            return (raw[:count] % 2).astype(name)
        return raw.view(dtype)

    batches = [Batch({names[i]: column(name, count) for i, name in enumerate(types)}) for count in rows]
    path = written(tmp_path_factory.getbasetemp() / "any", *batches)
    found = read(processors.read_npy(path))
    whole = Batch.concat(batches)
    assert (Batch.concat(found).equals(whole)) if found else whole.num_rows == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = np.load(path)
    assert loaded.dtype.names == tuple(names[: len(types)])
    assert len(loaded) == whole.num_rows


def test_headers_are_those_of_numpy_and_do_not_grow() -> None:
    wide = np.dtype([(f"column_{i}", "f8") for i in range(5000)])
    for dtype, version in [(RECORDS.dtype, 1), (wide, 2), (np.dtype([("日", "i4")]), 3)]:
        headers = [make_header(dtype, rows) for rows in (0, 7, 10**18)]
        assert len({len(header) for header in headers}) == 1
        assert headers[0][6] == version
        header = read_header(io.BytesIO(headers[1]), "here")
        assert header == (dtype, 7, len(headers[1]))
        assert header.size % 64 == 0
    old = make_header(np.dtype("i8"), 3).replace(b"(3,), }  ", b"(3L,), }")
    assert read_header(io.BytesIO(old), "here").rows == 3


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([{"a": 1}], "write_npy expected a Batch, got dict"),
        ([Batch({"s": ["x"]})], "column 's' is text of variable length"),
        ([Batch({"n": [1, None]})], "column 'n' has nulls"), ([Batch({})], "without columns"),
        ([Batch({"n": [1]}), Batch({"n": [1.5]})], "the columns of its first batch"),
    ],
)  # fmt: skip
def test_what_npy_cannot_hold_is_refused_and_nothing_is_left(tmp_path: Path, items: list[Any], what: str) -> None:
    processor = processors.write_npy(tmp_path)()
    driver = Driver(processor)
    with pytest.raises(BatchError, match=what):
        driver.feed(items)
    processor.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_gets_its_name_when_all_is_written_and_none_without_batches(tmp_path: Path) -> None:
    driver = Driver(processors.write_npy(tmp_path / "new")(), index=3, count=4)
    driver.feed([Batch({"n": [1]})])
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".3.npy.unfinished"]
    driver.complete()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["3.npy"]
    assert not written(tmp_path / "none").exists()
