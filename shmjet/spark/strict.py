"""Reading what Spark's JVM sends to a Python worker so that a torn stream is an error.

PySpark's `FramedSerializer.load_stream` takes an `EOFError` for the end of the iterator: when the JVM dies half way, or
loses a shuffle file, the function sees a normal end. Here only the end mark is an end.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Iterator
from typing import Any

from pyspark.serializers import Serializer

from shmjet.spark.errors import TornInputError

_END_OF_DATA = -1
_LENGTH = struct.Struct("!i")


class StrictStream:
    """A stream that raises `TornInputError` where another would return less than it was asked for.

    Args:
        stream: from the JVM; read with `read` and `readinto`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> Any:
        """Return exactly `size` bytes."""
        data = self._stream.read(size)
        if len(data) < size:
            raise _torn(size, len(data))
        return data

    def readinto(self, memory: memoryview) -> int:
        """Fill `memory`."""
        done, size = 0, len(memory)
        while done < size:
            count = self._stream.readinto(memory[done:])
            if not count:
                raise _torn(size, done)
            done += count
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _ReadOnlySerializer(Serializer):
    """A serializer of which Spark only uses the reading half."""

    def dump_stream(self, iterator: Any, stream: Any) -> None:
        """Not used: a feed only reads."""
        raise NotImplementedError("a feed only reads")


class StrictSerializer(_ReadOnlySerializer):
    """Any of PySpark's deserializers, on a strict stream.

    Args:
        inner: decodes what is on the stream.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def load_stream(self, stream: Any) -> Iterator[Any]:
        """Return the elements."""
        elements: Iterator[Any] = self.inner.load_stream(StrictStream(stream))
        return elements

    def _load_stream_without_unbatching(self, stream: Any) -> Any:
        return self.inner._load_stream_without_unbatching(StrictStream(stream))


class StrictFrames(_ReadOnlySerializer):
    """Frames of raw bytes: yields the length of each and the stream to read just that from."""

    def load_stream(self, stream: Any) -> Iterator[tuple[int, StrictStream]]:
        """Yield (bytes, stream) for each frame; the consumer of a pair reads all its bytes before the next."""
        strict = StrictStream(stream)
        while (length := _LENGTH.unpack(strict.read(4))[0]) != _END_OF_DATA:
            if length < 0:
                raise TornInputError(f"Spark's JVM announces a frame of {length} bytes")
            yield length, strict


class StrictRows(_ReadOnlySerializer):
    """Frames of pickled rows, as tuples of what lies inside Spark: days and microseconds, no dates, no `Row`."""

    def load_stream(self, stream: Any) -> Iterator[tuple[Any, ...]]:
        """Yield each row."""
        for length, strict in StrictFrames().load_stream(stream):
            yield from _RowUnpickler(io.BytesIO(strict.read(length))).load()


class _RowUnpickler(pickle.Unpickler):
    """Spark pickles a row as a call of what a schema's converter returns; this one returns the values themselves."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "pyspark.sql.types":
            if name == "_parse_datatype_json_string":
                return _no_schema
            if name == "_create_row_inbound_converter":
                return _plain_tuples
        return super().find_class(module, name)


def _no_schema(_: str) -> None:
    return None


def _plain_tuples(_: Any) -> Any:
    return _values


def _values(*values: Any) -> tuple[Any, ...]:
    return values


def _torn(wanted: int, found: int) -> TornInputError:
    return TornInputError(
        f"Spark's JVM broke off in the middle of a partition ({found} of {wanted} bytes came); Spark will try it again "
        "if it may (local[N,F] allows F failures)"
    )
