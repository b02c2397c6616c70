"""The stored bytes, against docs/formats/grid.md."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import get_args

from shmjet.core import keys
from shmjet.grid import Grid, blobs, change_log, changes, commit_counters, entries, layout, times
from shmjet.grid.disk import files
from shmjet.grid.scan import pages

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats" / "grid.md").read_text()


def row(name: str) -> str:
    """Return the second column of the row of the page's tables that starts with `name`."""
    found = re.search(rf"^\| {re.escape(name)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert found is not None, name
    return found[1].strip().strip("`")


def test_the_page_states_the_numbers_of_the_code() -> None:
    assert row("version") == str(layout.VERSION)
    assert row("longest name") == f"{layout.MAX_NAME} bytes"
    assert row("longest key") == f"{layout.MAX_KEY} bytes"
    assert row("inline limit") == f"{blobs.INLINE_LIMIT} bytes"
    assert row("announcement spacing") == f"{commit_counters.SPACING} bytes"
    for key, name in (
        (layout.MAP_RECORD, "map record"),
        (layout.LIST_RECORD, "list record"),
        (layout.GARBAGE_RECORD, "garbage record"),
        (layout.TYPE_RECORD, "type record"),
        (layout.MARKER_RECORD, "marker record"),
        (layout.LAST_INCARNATION, "last incarnation"),
        (layout.PARTITION_RECORD, "partition record"),
        (layout.END_RECORD, "end record"),
        (layout.USE_RECORD, "use record"),
        (layout.CLIENT_RECORD, "client record"),
        (layout.CLIENT_RECORD, "result record"),
        (layout.LOG_RECORD, "journal record"),
        (layout.OPEN_RECORD, "open record"),
        (layout.CHANGE_RECORD, "change record"),
        (layout.LAST_CHANGE, "last change"),
    ):
        assert row(name)[0] == key[4:].decode()
        assert key[:4] == bytes(4)
    assert row("pickle extension") == str(entries.PICKLE)
    assert row("blob extension") == str(entries.BLOB)
    assert row("timed extension") == str(times.TIMED)
    assert row("moments of use") == str(times.SLOTS)
    assert row("partition structure") == f"{layout.SIZES.size} bytes"
    assert row("open structure") == f"{layout.OPEN.size} bytes"
    kinds = {change.__name__ for change in get_args(change_log.Change)}
    assert all(f"`{kind}`" in PAGE for kind in kinds)
    assert row("event header") == f"{changes.EVENT.size} bytes"
    assert times.TRAILER.size == 3 * 8
    assert (layout.HAS_BLOBS, layout.HAS_TIMES, layout.HAS_ENDS) == (1, 2, 4)
    assert row("columns block") == str(entries.COLUMNS_BLOCK)
    assert row("pickle block") == str(entries.PICKLE_BLOCK)
    assert row("blob block") == str(entries.BLOB_BLOCK)
    assert row("map or list record") == f"{layout.RECORD.size} bytes"
    assert row("block header") == f"{entries.BLOCK_HEAD.size} bytes"


def test_the_page_states_the_numbers_of_the_files_on_disk() -> None:
    assert (files.FRAME.size, files.MAGIC, files.CLOCK, files.FORMAT) == (24, b"SJL1", 65535, 2)
    assert f"`{files.MAGIC.decode()}`" in PAGE
    assert f"`{files.STORE_FILE}` | format ({files.FORMAT})" in PAGE
    assert all(f"| `{name}" in PAGE for name in (files.LOG, files.CHECKPOINT, files.UNFINISHED, layout.GONE_FOLDER))


def test_a_file_of_a_large_value_is_as_the_page_says() -> None:
    lengths = (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
    head = b"".join(number.to_bytes(8, "little") for number in (3, 2, 3, 16))
    checksum = b"shmjetBC" + zlib.crc32(lengths + b"abcde").to_bytes(4, "little") + bytes(4)
    assert b"".join(map(bytes, blobs.contents([b"ab", b"cde"]))) == head + b"abcde" + checksum
    assert "| `shmjetBC` |" in PAGE


def test_the_tag_of_hashed_keys_is_no_tag_of_a_key() -> None:
    tags = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, bytes)}
    assert len(tags) > 10
    assert layout.HASHED not in tags


def test_an_entry_lies_where_the_page_says(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet["jet"] = 5
    table = grid.opened.parts_of(layout.record_key(layout.MAP_RECORD, "m"))[keys.partition_id("jet") % 2]
    with table.env.begin() as txn:
        record = txn.get(b"\0\0\0\0m" + b"m")
        assert record is not None
        assert layout.Record.unpack(record) == layout.Record(1, 1)
        key = record[:4] + keys.partition_id("jet").to_bytes(2, "big") + b"sjet"
        assert txn.get(key) == b"\x92\xa3jet\x05"
        sizes = txn.get(layout.PARTITION_RECORD + key[:6])
        assert layout.Sizes.unpack(sizes) == layout.Sizes(1)
    assert [page.values for page in pages(table.env, table.record_key)] == [[b"\x92\xa3jet\x05"]]
