from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet import processors
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.processors.files import line_blocks

from .test_files import read
from .test_line_blocks import pieces


def lines(path: Path, count: int = 1, **options: Any) -> list[str]:
    return [
        line for batch in read(processors.read_files(path, as_=Batch, **options), count) for (line,) in batch.tuples()
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    data=st.lists(pieces, max_size=40).map(b"".join),
    block=st.integers(1, 60),
    count=st.integers(1, 3),
    encoding=st.sampled_from(["utf-8", "latin-1", "ascii"]),
)
def test_lines_are_those_of_the_item_form(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, block: int, count: int, encoding: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "PIECE", 8)
        wanted = read(processors.read_files(path, block_size=block, encoding=encoding), count)
        found = lines(path, count, block_size=block, encoding=encoding, batch_rows=3)
    assert Counter(found) == Counter(wanted)
    if count == 1:
        assert found == wanted


def test_the_column_can_have_another_name_and_hold_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xff\nx\r\n")
    (batch,) = read(processors.read_files(path, as_=Batch, schema={"raw": "bytes"}))
    assert batch.schema == {"raw": "bytes"}
    assert batch["raw"].tolist() == [b"\xff", b"x"]


def test_path_can_be_a_column(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"1{name}\n2{name}\n")
    (tmp_path / "c").touch()
    batches = read(processors.read_files(tmp_path, as_=Batch, with_path=True))
    wanted = sorted((f"{n}{name}", str(tmp_path / name)) for n in "12" for name in "ab")
    assert sorted(row for batch in batches for row in batch.tuples()) == wanted


def test_bytes_that_are_no_text_fail_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"ok\n\xff\n")
    assert lines(path) == ["ok", "\ufffd"]
    with pytest.raises(BatchError, match=r"bad: column 'line': expected utf-8, found b'\\xff' \(invalid start byte\)"):
        lines(path, errors="strict")
    with pytest.raises(BatchError, match="bad: column 'line'"):
        lines(path, errors="surrogateescape")


def test_a_file_of_one_long_line_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("y" * 3_000_000)
    assert lines(path, 2, block_size=100_000) == ["y" * 3_000_000]


def test_batches_are_filled_across_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("x\n" * 25)
    batches = read(processors.read_files(tmp_path, as_=Batch, batch_rows=20))
    assert [batch.num_rows for batch in batches] == [20, 20, 20, 15]
