"""Streams from Spark's JVM that are cut somewhere: never a normal end."""

from __future__ import annotations

import io
import pickle
import struct

import pytest

pytest.importorskip("pyspark")

from pyspark.serializers import BatchedSerializer, CPickleSerializer

from shmjet.spark.errors import TornInputError
from shmjet.spark.strict import StrictFrames, StrictSerializer

END = struct.pack("!i", -1)


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack("!i", len(payload)) + payload for payload in payloads)


def frames(data: bytes) -> list[bytes]:
    return [bytes(stream.read(length)) for length, stream in StrictFrames().load_stream(io.BytesIO(data))]


def test_only_the_end_mark_is_an_end() -> None:
    data = framed(b"one", b"", b"three")
    assert frames(data + END + b"what follows") == [b"one", b"", b"three"]
    for cut in range(len(data) + len(END)):
        with pytest.raises(TornInputError, match="broke off in the middle of a partition"):
            frames((data + END)[:cut])


def test_a_frame_can_be_read_into_memory() -> None:
    memory = memoryview(bytearray(4))
    ((length, stream),) = [(length, stream) for length, stream in _first(framed(b"four"))]
    assert stream.readinto(memory) == length == 4
    assert bytes(memory) == b"four"
    with pytest.raises(TornInputError):
        stream.readinto(memory)


def _first(data: bytes) -> list[tuple[int, object]]:
    return [next(iter(StrictFrames().load_stream(io.BytesIO(data))))]


def test_pysparks_own_deserializers_are_as_strict_on_a_strict_stream() -> None:
    inner = BatchedSerializer(CPickleSerializer(), 2)
    data = framed(pickle.dumps([1, 2]), pickle.dumps([3]))
    assert list(inner.load_stream(io.BytesIO(data[:-1]))) == [1, 2]  # which is what all this is for
    strict = StrictSerializer(inner)
    assert list(strict.load_stream(io.BytesIO(data + END))) == [1, 2, 3]
    for cut in range(len(data) + len(END)):
        with pytest.raises(TornInputError):
            list(strict.load_stream(io.BytesIO((data + END)[:cut])))
