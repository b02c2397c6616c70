"""Reads the bytes of a chunk file and of a manifest by docs/formats/snapshot.md, without the code that writes them."""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from pathlib import Path

from shmjet._native import Codec
from shmjet.snapshots import chunk, manifest
from shmjet.snapshots.chunk import ChunkWriter
from shmjet.snapshots.manifest import Manifest, ProcessorRecord, SavedVertex, write_manifest
from tests.ring.test_formats import table

SIZES = {"<i": 4, "<I": 4, "<B": 1, "<Q": 8}


def test_chunk_file_is_as_the_page_says(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path / "a.chunk", Codec())
    plain = [("a", 1), ("b", 2)]
    other = [("a", {1}), ("b", 2)]
    pieces = [writer.write(plain, 5, 271, 1), writer.write(other, -1)]
    writer.close()
    data = (tmp_path / "a.chunk").read_bytes()
    assert struct.unpack_from("<8sII", data) == (b"shmjetSC", 1, 0)
    at = 16
    assert struct.unpack_from("<iIIBBHQ", data, at) == (5, 271, 2, 1, 1, 0, pieces[0].size - 24)
    assert Codec().decode(data[at + 24 : at + pieces[0].size], 2) == plain
    assert zlib.crc32(data[at : at + pieces[0].size]) == pieces[0].checksum
    at += pieces[0].size
    partition, count, entries, codec, scheme, zero, size = struct.unpack_from("<iIIBBHQ", data, at)
    assert (partition, count, entries, codec, scheme, zero) == (-1, 0, 2, 2, 0, 0)
    payload = data[at + 24 : at + 24 + size]
    buffers, _, pickled = struct.unpack_from("=IIQ", payload)
    assert buffers == 0
    assert pickle.loads(payload[16 : 16 + pickled]) == other
    assert at + 24 + size == len(data)


def test_manifest_is_as_the_page_says(tmp_path: Path) -> None:
    piece = manifest.Piece(-3, "a.chunk", 16, 40, 99, 2)
    vertices = [SavedVertex("v", 2, 271, [ProcessorRecord(1, True, [piece])], "sort")]
    write_manifest(tmp_path / "1.manifest", Manifest("l", 1, "j", "name", 1.5, True, vertices))
    data = (tmp_path / "1.manifest").read_bytes()
    magic, version, checksum, size = struct.unpack_from("<8sIIQ", data)
    body = data[24:]
    assert (magic, version, checksum, size) == (b"shmjetSM", 1, zlib.crc32(body), len(body))
    assert json.loads(body) == {
        "lineage": "l",
        "snapshot_id": 1,
        "job_id": "j",
        "job_name": "name",
        "created": 1.5,
        "terminal": True,
        "vertices": [["v", 2, 271, [[1, True, [[-3, "a.chunk", 16, 40, 99, 2]], True]], "sort"]],
    }


def test_offsets_on_the_page_are_those_of_the_structs() -> None:
    heads = [chunk.FILE_HEAD.size, chunk.PIECE_HEAD.size, manifest.HEAD.size]
    last = [table("snapshot.md", "offset", nth)[-1] for nth in range(3)]
    assert [int(row["offset"]) for row in last] == heads
