"""Payloads of packets on edges that are compressed (`EdgeConfig(compression="lz4")`): made smaller, and back.

LZ4 in blocks, by the package `lz4`, which is imported when the first such edge is opened. What is read is bounded
before any memory is taken for it: a block says how long it becomes, and nothing longer than the packet could have
carried as it was is unpacked. Knows nothing of lanes and windows; both ends count the bytes as they were.
"""

from __future__ import annotations

import importlib
import importlib.util
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from shmjet.data.errors import ConfigError
from shmjet.execution.job_plan import EdgePlan
from shmjet.net.packets import KIND_NAMES, LONGEST, PacketError

if TYPE_CHECKING:
    from typing_extensions import Buffer

SIZE = struct.Struct("<I")
"""In front of a block: the bytes of the payload as it was."""
LEAST = 512
"""A payload of fewer bytes travels as it is."""
_WORTH = 16
"""A payload that does not shrink by one part in so many travels as it is, too: unpacking costs time."""


def is_installed() -> bool:
    """Say whether payloads can be compressed here."""
    return importlib.util.find_spec("lz4") is not None


def check_installed(edges: Iterable[EdgePlan], names: Sequence[str], where: str) -> None:
    """See to it that edges can be compressed here if they are to be.

    Args:
        edges: of a plan.
        names: of its vertices.
        where: which member this is.

    Raises:
        ConfigError: the package is missing.
    """
    for edge in edges:
        if edge.distributed and edge.compression is not None and not is_installed():
            raise ConfigError(
                f"the edge from {names[edge.source]!r} to {names[edge.destination]!r} is to be compressed, but "
                f"{where} lacks the package {edge.compression}: pip install {edge.compression}"
            )


class Lz4Compressor:
    """Makes payloads smaller, and back."""

    def __init__(self) -> None:
        self._block: Any = importlib.import_module("lz4.block")

    def pack(self, payload: Buffer) -> bytes | None:
        """Return what a payload becomes, None where that is hardly smaller."""
        with memoryview(payload) as view:
            size = view.nbytes
            if size < LEAST:
                return None
            packed: bytes = self._block.compress(view, store_size=True)
        return packed if len(packed) <= size - size // _WORTH else None

    def unpack(self, kind: int, packed: memoryview) -> bytes:
        """Return a payload of a packet of some kind as it was.

        Raises:
            PacketError: it is not such a block, or would be longer than packets of that kind are.
        """
        size = unpacked_size(kind, packed)
        try:
            payload: bytes = self._block.decompress(packed)
        except self._block.LZ4BlockError as error:
            raise PacketError(f"a {KIND_NAMES[kind]} packet that cannot be unpacked: {error}") from error
        if len(payload) != size:
            raise PacketError(f"a {KIND_NAMES[kind]} packet of {size} bytes unpacks to {len(payload)}")
        return payload


def unpacked_size(kind: int, packed: memoryview | bytes) -> int:
    """Return how long a payload becomes.

    Raises:
        PacketError: longer than packets of that kind are, or it is too short to say so.
    """
    if len(packed) <= SIZE.size:
        raise PacketError(f"a {KIND_NAMES[kind]} packet of {len(packed)} bytes holds no block")
    size: int = SIZE.unpack_from(packed)[0]
    if not 0 < size <= LONGEST[kind]:
        raise PacketError(f"a {KIND_NAMES[kind]} packet that unpacks to {size} bytes; {LONGEST[kind]} are allowed")
    return size
