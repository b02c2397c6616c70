"""Every number on the pages in docs/formats about rings, frames and columns is what the code does."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

import numpy as np

from shmjet._native import (
    DOORBELL_SIZE,
    RECORD_HEADER,
    RING_HEADER,
    RING_MIN_CAPACITY,
    SLAB_UNIT,
    Codec,
    Doorbell,
    RingConsumer,
    RingProducer,
    SlabReader,
    SlabWriter,
    ring_format,
)
from shmjet.data.batch import Batch
from shmjet.data.text import Text
from shmjet.ring import frames
from shmjet.ring.batch_frames import BatchCodec, padded

ROOT = Path(__file__).parents[2]
FORMATS = ROOT / "docs" / "formats"
NATIVE = ROOT / "shmjet" / "_native"


def table(page: str, first: str, nth: int = 0) -> list[dict[str, str]]:
    """Return the rows of the nth table of a page whose first column is called `first`."""
    found: list[list[dict[str, str]]] = []
    names: list[str] = []
    for line in (FORMATS / page).read_text().splitlines():
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
            found.append([])
        elif not set(line) <= set("|-"):
            found[-1].append(dict(zip(names, cells, strict=True)))
    return [rows for rows in found if rows and next(iter(rows[0])) == first][nth]


def enum(header: str, prefix: str) -> dict[str, int]:
    """Return the members of a C enum whose names start with `prefix`, without it."""
    text = re.sub(r"/\*.*?\*/", "", (NATIVE / header).read_text(), flags=re.S)
    for body in re.findall(r"enum \{(.*?)\}", text, flags=re.S):
        members, value = {}, -1
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, _, number = entry.partition("=")
            value = int(number) if number else value + 1
            members[name.strip()] = value
        if all(name.startswith(prefix) for name in members) and len(members) > 3:
            return {name.removeprefix(prefix): number for name, number in members.items()}
    raise AssertionError(f"{header} has no enum of {prefix}")


def test_the_control_block_is_as_the_page_says() -> None:
    rows = {row["name"]: row for row in table("ring.md", "offset", 0)}
    memory = mmap.mmap(-1, 1 << 14)
    ring_format(memory, 0, 4096, 7)
    producer, consumer, codec = RingProducer(memory, 0), RingConsumer(memory, 0), Codec()

    def word(name: str) -> int:
        start = int(rows[name]["offset"])
        return int.from_bytes(memory[start : start + int(rows[name]["bytes"])], "little")

    assert word("magic") == int(rows["magic"]["meaning"], 16)
    assert word("version") == int(rows["version"]["meaning"])
    assert (word("capacity"), word("queue_size")) == (4096, 7)
    assert int(rows["data"]["offset"]) == RING_HEADER
    assert f"{RING_MIN_CAPACITY} to 2^31" in rows["capacity"]["meaning"]
    producer.push_bytes(9, 0, 0, 5, [bytes(100)])
    assert (word("tail"), word("items_in"), word("head")) == (128, 5, 0)
    got = consumer.pull(codec)
    assert got is not None
    got[4].release()
    consumer.release()
    assert (word("head"), word("items_out"), word("wake_at")) == (128, 5, 0)
    producer.push_bytes(9, 0, 0, 7, [bytes(84)])
    assert not producer.push_bytes(9, 0, 0, 1, [b""])
    assert 128 < word("wake_at") <= word("tail")
    known = set()
    for row in rows.values():
        known |= set(range(int(row["offset"]), int(row["offset"]) + int(row["bytes"] or 4096)))
    assert not any(memory[i] for i in range(RING_HEADER) if i not in known)


def test_the_record_header_is_as_the_page_says() -> None:
    rows = table("ring.md", "offset", 1)
    memory = mmap.mmap(-1, 1 << 14)
    ring_format(memory, 0, 4096, 1 << 20)
    RingProducer(memory, 0).push_bytes(0x11, 0x22, 0x3344, 0x55667, [b"payload"])
    record = memory[RING_HEADER : RING_HEADER + 32]
    sizes = {4: "I", 1: "B", 2: "H"}
    layout = struct.Struct("<" + "".join(sizes[int(row["bytes"])] for row in rows[:-1]))
    assert layout.unpack_from(record) == (7, 0x11, 0x22, 0x3344, 0x55667, 0)
    assert layout.size == frames.RECORD.size == RECORD_HEADER == int(rows[-1]["offset"])
    assert record[RECORD_HEADER:][:7] == b"payload"
    offset = 0
    for row in rows[:-1]:
        assert int(row["offset"]) == offset
        offset += int(row["bytes"])


def test_a_skip_fills_the_end_of_the_ring() -> None:
    memory = mmap.mmap(-1, 1 << 14)
    ring_format(memory, 0, 4096, 1 << 20)
    producer, consumer, codec = RingProducer(memory, 0), RingConsumer(memory, 0), Codec()
    for size in (2000, 1900, 500):
        assert producer.push_bytes(9, 0, 0, 0, [b"x" * size])
        got = consumer.pull(codec)
        assert got is not None
        got[4].release()
        consumer.release()
    at = RING_HEADER + 2016 + 1920
    header = frames.RECORD.unpack_from(memory, at)
    assert header[:2] == (4096 - 2016 - 1920 - RECORD_HEADER, frames.KIND_SKIP)
    assert frames.RECORD.unpack_from(memory, RING_HEADER)[:2] == (500, 9)


def test_the_doorbell_is_as_the_page_says() -> None:
    rows = {row["name"]: int(row["offset"]) for row in table("ring.md", "offset", 2)}
    memory = mmap.mmap(-1, 4096)
    bell = Doorbell(memory, 0)
    bell.post()
    bell.ring()
    assert memory[rows["word"]] == 2
    assert memory[rows["commands"]] == 1
    memory[rows["sleeping"]] = 1
    assert bell.sleeping
    bell.ring()
    assert not bell.sleeping
    assert not any(memory[DOORBELL_SIZE:])


def test_kinds_and_codecs_are_as_the_page_says() -> None:
    for first, prefix in (("kind", "KIND_"), ("codec", "CODEC_")):
        page = {row["name"]: int(row[first]) for row in table("frame.md", first)}
        code = {name.removeprefix(prefix): value for name, value in vars(frames).items() if name.startswith(prefix)}
        assert page == code
    flags = {row["name"]: row["flags"] for row in table("frame.md", "kind")}
    assert flags["BARRIER"] == f"{frames.FLAG_TERMINAL} = terminal"
    assert flags["FRAGMENT"] == (
        f"{frames.FLAG_FIRST} = first, {frames.FLAG_LAST} = last, {frames.FLAG_CANCEL} = cancel"
    )


def test_the_pickled_payload_is_as_the_page_says() -> None:
    rows = table("frame.md", "offset")
    assert [int(row["offset"]) for row in rows] == [0, 4, 8, frames.PICKLE_HEAD.size]
    assert frames.BUFFER_SIZE.size == 8
    assert f"next multiple of {frames.BUFFER_ALIGNMENT}" in (FORMATS / "frame.md").read_text()


def test_column_types_and_classes_are_as_the_page_says() -> None:
    assert {row["name"]: int(row["type"]) for row in table("codec.md", "type")} == enum("codec/codec.h", "COLUMN_")
    classes = enum("codec/codec.h", "CLASS_")
    del classes["COUNT"]
    assert {row["name"]: int(row["class"]) for row in table("codec.md", "class")} == classes


def test_columns_look_as_the_page_says() -> None:
    codec = Codec()

    def column(kind: int, width: int, extra: int, *body: bytes) -> bytes:
        return struct.pack("<BBHI", kind, width, 0, extra) + b"".join(body)

    def check(items: list[object], expected: bytes) -> None:
        assert codec.encode(items, 0, len(items)) == expected

    check([-2, 253], column(1, 1, 0, struct.pack("<q", -2), b"\x00\xff"))
    check([0, 65536], column(1, 4, 0, bytes(8), struct.pack("<II", 0, 65536)))
    check([-(2**63), 2**63 - 1], column(1, 8, 0, struct.pack("<qQQ", -(2**63), 0, 2**64 - 1)))
    check([0.5], column(2, 8, 0, struct.pack("<d", 0.5)))
    check(["é", ""], column(3, 1, 0, b"\x02\x00", "é".encode()))
    check([b"x" * 256], column(4, 2, 0, b"\x00\x01", b"x" * 256))
    check([False, True, None], column(5, 1, 0, b"\x00\x01\x02"))
    check([(1, b"a")], column(6, 0, 2, column(1, 1, 0, struct.pack("<q", 1), b"\x00"), column(4, 1, 0, b"\x01a")))
    check([{"k": True}], column(7, 0, 1, column(3, 1, 0, b"\x01k"), column(5, 1, 0, b"\x01")))
    check([[], [True, None]], column(8, 1, 0, b"\x00\x02", column(5, 1, 0, b"\x01\x02")))
    check([(), (True,)], column(9, 1, 0, b"\x00\x01", column(5, 1, 0, b"\x01")))
    check([0.5, None], column(10, 1, 0, b"\x04\x02", column(2, 8, 0, struct.pack("<d", 0.5))))
    check([(), ()], column(11, 0, 0, b"\x00\x00"))
    check([{}], column(11, 1, 0, b"\x00"))


def test_the_place_of_a_batch_is_as_the_page_says() -> None:
    rows = table("frame.md", "offset", 1)
    assert [int(row["offset"]) for row in rows] == [0, 4, 8, 16]
    packed = frames.SLOT.pack(3, 0, 1 << 40, 77)
    assert (packed[0], packed[8:16], packed[16]) == (3, (1 << 40).to_bytes(8, "little"), 77)
    assert frames.SLOT.size == 24


def test_a_slab_is_as_the_page_says() -> None:
    rows = {row["name"]: row for row in table("slab.md", "offset")}
    memory = mmap.mmap(-1, 1 << 20)
    writer = SlabWriter(memory, 0, 1 << 20)
    assert memory[:4] == (0x42534A53).to_bytes(4, "little")
    assert "0x42534a53" in rows["magic"]["meaning"]
    assert int.from_bytes(memory[4:8], "little") == writer.units
    assert rows["data"]["bytes"] == f"{SLAB_UNIT} u"
    writer.usable = writer.units
    assert writer.put((b"a" * SLAB_UNIT, b"b"), 3) == 0
    assert writer.put((b"c",), 1) == 2 * SLAB_UNIT
    counts = int(rows["counts"]["offset"])
    assert list(memory[counts : counts + 12 : 4]) == [3, 0, 1]
    data = -(-(counts + 4 * writer.units) // 4096) * 4096
    assert memory[data : data + 2] == b"aa"
    assert memory[data + SLAB_UNIT : data + SLAB_UNIT + 2] == b"b\0"
    held = int(rows["held"]["offset"])
    slot = SlabReader(memory, 0, 1 << 20).take(0, SLAB_UNIT + 1)
    assert int.from_bytes(memory[held : held + 8], "little") == SLAB_UNIT + 1
    del slot
    assert (memory[held], memory[counts]) == (0, 2)


def test_a_batch_is_as_the_page_says() -> None:
    batch = Batch({"n": np.arange(3), "t": Text.of(["a", "bc", ""])}, {"n": np.array([True, False, True])})
    parts, size = BatchCodec().encode(batch)
    payload = b"".join(bytes(part) for part in padded(parts))
    assert len(payload) == size
    count, schema_size, rows = struct.unpack_from("<IIQ", payload)
    sizes = struct.unpack_from(f"<{count}Q", payload, 16)
    assert (count, rows, sizes) == (4, 3, (24, 3, 32, 3))
    at = 16 + 8 * count
    assert payload[at : at + schema_size].decode() == "[('n', '<i8', True), ('t', 'text', False)]"
    at += schema_size
    found = []
    for size in sizes:
        at = -(-at // 64) * 64
        found.append(payload[at : at + size])
        at += size
    assert found == [np.arange(3).tobytes(), b"\1\0\1", np.array([0, 1, 3, 3]).tobytes(), b"abc"]
