"""What the disk of a member says of its partitions: what counts again, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk
from shmjet.cluster.partitions.table import Holder, PartitionTable
from shmjet.data.errors import ConfigError

MEMBERS = [Holder("me", "one"), Holder("you", "two")]
ADDRESSES = {"me": "me:1", "you": "you:1"}


def on_disk(folder: Path) -> PartitionsOnDisk:
    return PartitionsOnDisk(folder, lambda: ADDRESSES)


def table() -> PartitionTable:
    return PartitionTable.first(3, 4, MEMBERS, 0)


def test_what_was_noted_counts_when_the_table_says_so(tmp_path: Path) -> None:
    first = on_disk(tmp_path)
    assert first.found is None
    assert first.take_up("me", table()) == {}
    mine = [partition for partition in range(4) if table().primary(partition) == "me"]
    first.note("me", table(), {partition: 100 + partition for partition in mine})
    second = on_disk(tmp_path)
    assert second.found is not None
    assert (second.found.uuid, second.found.table, second.found.addresses) == ("me", table(), ("me:1", "you:1"))
    again = msgspec.structs.replace(table(), former=("me", "you"))
    assert second.waits
    assert second.take_up("me", again) == {partition: 100 + partition for partition in mine}
    assert not second.waits
    assert on_disk(tmp_path).take_up("me", table()) == {}  # the cluster has gone on
    assert on_disk(tmp_path).take_up("me", msgspec.structs.replace(table(), former=("other", "you"))) == {}
    second.forget()
    assert on_disk(tmp_path).found is None


def test_the_file_is_written_when_there_is_news(tmp_path: Path) -> None:
    disk = on_disk(tmp_path)
    disk.note("me", table(), {0: 1})
    written = (tmp_path / "partitions").stat().st_ino
    disk.note("me", table(), {})
    assert (tmp_path / "partitions").stat().st_ino == written
    disk.note("me", table(), {1: 2})
    assert on_disk(tmp_path).found is not None
    assert (tmp_path / "partitions").stat().st_ino != written


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (msgspec.msgpack.encode([9, None]), r"in format 9 which partitions lie here; this shmjet reads 1"),
        (msgspec.msgpack.encode({"a": 1}), r"in format \{'a': 1\} which partitions"),
        (msgspec.msgpack.encode([1, "x", 2]), r"does not say which partitions lie here"),
        (b"\xc1", r"does not say which partitions lie here .*give another folder as storage"),
        (b"", r"does not say which partitions lie here"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "partitions").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        on_disk(tmp_path)


def test_a_changed_byte_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    on_disk(tmp_path).note("me", table(), {0: 1 << 60, 1: 5})
    path = tmp_path / "partitions"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ConfigError, match=rf"^{path} .*give another folder as storage") as raised:
            on_disk(tmp_path)
        assert "copy" in str(raised.value) or "in format" in str(raised.value)


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    on_disk(tmp_path).note("me", table(), {0: 7})
    path = tmp_path / "partitions"
    now = msgspec.msgpack.decode(path.read_bytes())
    path.write_bytes(msgspec.msgpack.encode(now[:3]))
    older = on_disk(tmp_path).found
    assert older is not None
    assert older.table == table()
