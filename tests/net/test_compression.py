"""Edges that are compressed: the same items, fewer bytes; and blocks that lie about what is in them."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import DAG, EdgeConfig, between
from shmjet.data.batch import Batch
from shmjet.data.errors import ConfigError
from shmjet.net import compression
from shmjet.net.compression import LEAST, Lz4Compressor, check_installed, unpacked_size
from shmjet.net.messages import PeerDown
from shmjet.net.packets import BATCH, DATA, FLAG_LZ4, HEADER, HEADER_SIZE, LONGEST, Header, PacketError
from shmjet.net.wire_dump import dump
from tests.execution.vertices import Collect, Emit
from tests.net.members import ClusterRun, await_, linked, running

pytest.importorskip("lz4.block", reason="the package lz4 is not installed (pip install lz4)")

LZ4 = EdgeConfig(compression="lz4")
TEXTS = [f"a line of a log that is much like the last one, number {number}" for number in range(4000)]
ROWS = 100_000


def texts(index: int, total: int) -> Iterator[str]:
    yield from TEXTS[index::total]


def batches(index: int, total: int) -> Iterator[Batch]:
    for number in range(4):
        yield Batch({"key": np.arange(ROWS) % 97 + number, "value": np.zeros(ROWS)})


def noise(index: int, total: int) -> Iterator[bytes]:
    for _ in range(20):
        yield os.urandom(10_000)


def dag_of(make: Any, config: EdgeConfig) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(make), local_parallelism=1)
    sink = dag.new_vertex("sink", Collect, local_parallelism=1)
    return dag.edge(between(source, sink).broadcast().distributed().configure(config))


def bytes_of(run: ClusterRun) -> tuple[int, int]:
    """Return the bytes that the first member has sent on its edges, and on the connection."""
    stats = run.stats(0)
    return sum(edge.bytes_out for edge in stats.edges), sum(peer.bytes_out for peer in stats.peers)


@pytest.mark.parametrize("config", [LZ4, EdgeConfig(compression="lz4", queue_size=16, packet_size_limit=1)])
def test_items_arrive_equal_in_fewer_bytes(config: EdgeConfig) -> None:
    with linked(2) as members, running(members, dag_of(texts, config), ring_memory=2 << 20) as run:
        run.run()
        for part in run.collected():
            assert sorted(item for _, _, item in part) == sorted(TEXTS)
        before, sent = bytes_of(run)
        assert sent < before / 2


def test_batches_arrive_equal_in_fewer_bytes() -> None:
    with linked(2) as members, running(members, dag_of(batches, LZ4)) as run:
        run.run()
        for part in run.collected():
            assert sum(batch.num_rows for _, _, batch in part) == 8 * ROWS
            assert sum(int(batch["key"].sum()) for _, _, batch in part) == 2 * sum(
                int((np.arange(ROWS) % 97 + number).sum()) for number in range(4)
            )
            part.clear()
        before, sent = bytes_of(run)
        assert sent < before / 20


def test_what_cannot_be_made_smaller_travels_as_it_is() -> None:
    with linked(2) as members, running(members, dag_of(noise, LZ4)) as run:
        run.run()
        assert all(len(part) == 40 for part in run.collected())
        before, sent = bytes_of(run)
        assert before <= sent < before * 1.1


def test_windows_count_bytes_as_they_were() -> None:
    with linked(2) as members, running(members, dag_of(texts, LZ4)) as run:
        run.run()
        out, into = run.stats(0).edges[0], run.stats(1).edges[0]
        assert out.bytes_out == into.bytes_in
        assert into.waiting == 0


def test_a_compressed_packet_on_an_edge_that_is_not_ends_the_connection(caplog: Any) -> None:
    with linked(2) as members, running(members, dag_of(texts, EdgeConfig())) as run:
        packed = Lz4Compressor().pack(memoryview(bytes(1024)))
        assert packed is not None
        peer = next(iter(members[0].link.peers.values()))
        peer.writer.queue(HEADER.pack(len(packed), DATA, FLAG_LZ4, 0, 7, 0, 1, 1, 0) + packed)
        down = await_(members, lambda: members[1].take(PeerDown))
        assert "a compressed packet on edge 0 of execution 7, which is not" in down.reason
        assert len([r for r in caplog.records if r.name == "shmjet.link"]) == 1
        assert not any(run.collected())


# -- blocks -------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=3000), st.integers(1, 40))
def test_a_payload_comes_back(piece: bytes, times: int) -> None:
    compressor, payload = Lz4Compressor(), memoryview(piece * times)
    packed = compressor.pack(payload)
    if packed is not None:
        assert len(packed) < len(payload)
        assert compressor.unpack(BATCH, memoryview(packed)) == payload
    else:
        assert len(payload) < LEAST or len(set(piece)) > 1


@pytest.mark.parametrize(
    ("kind", "packed", "said"),
    [
        (DATA, b"", "holds no block"),
        (DATA, struct.pack("<I", 1024), "holds no block"),
        (DATA, struct.pack("<I", 0) + b"x", "unpacks to 0 bytes"),
        (DATA, struct.pack("<I", LONGEST[DATA] + 1) + b"x", "2097153 bytes; 2097152 are allowed"),
        (BATCH, struct.pack("<I", 0xFFFFFFFF) + b"x" * 99, "4294967295 bytes; 8388608 are allowed"),
        (BATCH, struct.pack("<I", 1 << 20) + b"x" * 99, "cannot be unpacked"),
    ],
)
def test_a_block_that_lies_is_refused_before_it_takes_memory(kind: int, packed: bytes, said: str) -> None:
    with pytest.raises(PacketError, match=said):
        Lz4Compressor().unpack(kind, memoryview(packed))


def test_a_bomb_takes_no_more_than_a_packet_may_have() -> None:
    """Blocks of the greatest ratio (255), which say less than what is in them, and more."""
    import lz4.block

    compressor = Lz4Compressor()
    block = lz4.block.compress(bytes(64 << 20), store_size=False)
    tracemalloc.start()
    try:
        for said in (1, LONGEST[BATCH], 1 << 30):
            with pytest.raises(PacketError):
                compressor.unpack(BATCH, memoryview(struct.pack("<I", said) + block))
        assert tracemalloc.get_traced_memory()[1] < 2 * LONGEST[BATCH]
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200), st.integers(0, 1 << 14))
def test_any_block_is_unpacked_or_refused(block: bytes, size: int) -> None:
    with contextlib.suppress(PacketError):
        assert len(Lz4Compressor().unpack(DATA, memoryview(struct.pack("<I", size) + block))) == size


def test_what_is_unpacked_must_be_a_payload_of_its_kind() -> None:
    from shmjet.net.peer import unpacked_payload

    class Lanes:
        def lane(self, header: Header) -> Any:
            return type("Lane", (), {"edge": type("Edge", (), {"compressor": Lz4Compressor()})})

    packed = Lz4Compressor().pack(memoryview(bytes(1001)))  # no whole record
    assert packed is not None
    lanes: Any = Lanes()
    with pytest.raises(PacketError, match="not a run of records"):
        unpacked_payload(lanes, Header(len(packed), DATA, FLAG_LZ4, 0, 7, 0, 1, 1, 0), memoryview(packed))


# -- where it shows -----------------------------------------------------------------------------------------------


def test_a_dump_shows_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from shmjet.ring import frames

    record = frames.RECORD.pack(8, frames.KIND_WATERMARK, 0, 0, 0, 0) + (77).to_bytes(8, "little") + bytes(8)
    packed = Lz4Compressor().pack(memoryview(record * 50))
    assert packed is not None
    stream = HEADER.pack(len(packed), DATA, FLAG_LZ4, 3, 9, 1, 2, 0, 0) + packed
    stream += HEADER.pack(len(packed), BATCH, FLAG_LZ4, 3, 9, 1, 2, 1, 0) + packed
    lines = list(dump(io.BytesIO(stream)))
    assert f"{len(packed)} bytes (lz4 of 1600), 0 items" in lines[0]
    assert lines[2] == "     +32    watermark 77, 8 bytes"
    assert "BATCH" in lines[51]
    assert f"{len(packed)} bytes (lz4 of 1600)" in lines[51]
    assert unpacked_size(DATA, stream[HEADER_SIZE:]) == 1600
    monkeypatch.setattr("shmjet.net.wire_dump.is_installed", lambda: False)
    assert "lz4 is missing here" in list(dump(io.BytesIO(stream)))[1]


def test_where_it_is_not_installed_the_error_names_edge_and_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from shmjet.execution.plan import describe

    shape = describe(dag_of(texts, LZ4))
    check_installed(shape.edges, ["source", "sink"], "member 10.0.0.5:5701")
    monkeypatch.setattr(compression, "is_installed", lambda: False)
    wanted = r"'source' to 'sink' .* member 10.0.0.5:5701 lacks the package lz4: pip install lz4"
    with pytest.raises(ConfigError, match=wanted):
        check_installed(shape.edges, ["source", "sink"], "member 10.0.0.5:5701")
    dag = DAG()
    dag.edge(between(dag.new_vertex("a", Collect), dag.new_vertex("b", Collect)).configure(LZ4))
    check_installed(describe(dag).edges, ["a", "b"], "here")  # nothing leaves the member


@pytest.mark.parametrize("wrong", ["gzip", 1, True, ""])
def test_an_unknown_compression_is_a_config_error(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="compression must be None or one of 'lz4'"):
        EdgeConfig(compression=wrong)
