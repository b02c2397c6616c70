"""Types and contracts of the exchange by Arrow's C data interface and C stream interface.

A schema is a tree of tuples; `shmjet.data.arrow` knows what it means. All errors that a producer can cause are
`ValueError`.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias, final

import numpy.typing as npt
from typing_extensions import Buffer

Memory: TypeAlias = Buffer | npt.NDArray[Any]
"""Anything with the buffer protocol; type checkers do not know that numpy's arrays have it."""

Capsule: TypeAlias = Any
"""A PyCapsule, whose name says what it holds."""

SchemaTree: TypeAlias = tuple[str, str, bytes | None, int, tuple[SchemaTree, ...], SchemaTree | None]
"""(format, name, metadata or None, flags, children, dictionary or None)."""

ArrayTree: TypeAlias = tuple[int, int, tuple[Memory | None, ...], tuple[ArrayTree, ...], ArrayTree | None]
"""(length, null_count, buffers, children, dictionary or None)."""

NestedPart: TypeAlias = tuple[str, int, tuple[NestedPart, ...], Memory | None, Memory | None, Memory | None]
"""(kind, width, parts, data, offsets, valid) of a part of a nested type: kind "f" (fixed width), "t" (text or bytes),
"l" (list) or "s" (struct); `valid` has a byte a slot. What does not apply is 0, () or None."""

# -- read.c ----------------------------------------------------------------------------------------------------------

@final
class Array:
    """An array that another library gave. It is released when neither it nor a part of it is referred to any more.

    Nothing of it has been checked against a type.
    """

    @property
    def length(self) -> int: ...
    @property
    def offset(self) -> int:
        """Values before the first, in all buffers."""

    @property
    def null_count(self) -> int:
        """-1: not known."""

    @property
    def buffer_count(self) -> int: ...
    @property
    def children(self) -> tuple[Array, ...]:
        """Raises ValueError when one lacks or has been released."""

    @property
    def dictionary(self) -> Array | None: ...
    def buffer(self, index: int, size: int) -> memoryview | None:
        """Return a buffer as `size` bytes, which cannot be checked; None where the producer gave none.

        It is read-only, and keeps the whole array.

        Raises ValueError when there is no buffer of this number.
        """

@final
class Stream:
    """A stream of arrays that another library gives; released with the object."""

    def schema(self) -> SchemaTree:
        """Return the type of its arrays; called once. Raises ValueError with the producer's text."""

    def next(self) -> Array | None:
        """Return the next array; None at the end. Raises ValueError with the producer's text."""

def read_schema(capsule: Capsule) -> SchemaTree:
    """Return what a capsule "arrow_schema" holds. Raises ValueError when it is not a schema, or was released."""

def take_array(capsule: Capsule) -> Array:
    """Move an array out of a capsule "arrow_array". Raises ValueError when it is not an array, or was moved before."""

def take_stream(capsule: Capsule) -> Stream:
    """Move a stream out of a capsule "arrow_array_stream". Raises ValueError when it is none, or moved."""

# -- write.c ---------------------------------------------------------------------------------------------------------

def schema_capsule(schema: SchemaTree) -> Capsule:
    """Return a capsule "arrow_schema". Raises ValueError when a name has a NUL character."""

def stream_capsule(schema: SchemaTree, arrays: Iterable[ArrayTree]) -> Capsule:
    """Return a capsule "arrow_array_stream" of arrays; the iterator is advanced when the consumer asks for one.

    An array keeps its buffers until the consumer releases it. What the iterator raises, the consumer gets as text.
    """

# -- text.c ----------------------------------------------------------------------------------------------------------

def view_ends(array: Array, start: int, rows: int, valid: Memory | None, offsets: Memory) -> int:
    """Write rows + 1 int64 offsets for values that are string views, and return how many bytes the values have.

    Nulls have no bytes. Raises ValueError when a view leaves its buffer.
    """

def view_data(array: Array, start: int, rows: int, offsets: Memory, data: Memory) -> None:
    """Copy the values to where `view_ends` put them; `data` has 12 bytes more than they need."""

def text_codes(offsets: Memory, data: Memory, valid: Memory | None, codes: Memory) -> bytes:
    """Write the number (int32) of each value among the different ones, and return the row (int64) of each of these.

    Nulls have the number 0, and are none of the different values. Raises ValueError when these are more than 2**31 - 2.
    """

def wrong_utf8(offsets: Memory, data: Memory) -> int:
    """Return the first value (`offsets` are int64, ascending in `data`) that is not valid UTF-8; -1 when all are."""

# -- nested.c --------------------------------------------------------------------------------------------------------

def nested_ends(part: NestedPart, rows: int, offsets: Memory) -> int:
    """Write where the encodings of nested values begin and end, and return the bytes of all.

    Raises ValueError when a buffer is too short, offsets do not ascend, or a length has more than 32 bits.
    """

def nested_data(part: NestedPart, rows: int, data: Memory) -> None:
    """Write the encodings, as long as `nested_ends` says."""

def nested_parts(offsets: Memory, data: Memory, valid: Memory | None, part: NestedPart) -> list[tuple[int, int]]:
    """Decode into the memory of a part and of those in it; without memory, only count.

    Returns (slots, bytes of text) of each, in the order in which they stand in the type. Raises ValueError when the
    bytes are not encodings of the type.
    """
