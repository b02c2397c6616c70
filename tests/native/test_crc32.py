"""The checksum of saved state: that of zlib, for bytes of any length that begin anywhere."""

from __future__ import annotations

import random
import zlib

import pytest

from shmjet._native import crc32


def test_checksums_are_those_of_zlib() -> None:
    dice = random.Random(32)
    data = dice.randbytes(70_000)
    for length in [*range(300), 4096, 65_535, 65_536, 69_000]:
        start = dice.randrange(1000)
        part = memoryview(data)[start : start + length]
        assert crc32(part) == zlib.crc32(part)
        before = dice.getrandbits(32)
        assert crc32(part, before) == zlib.crc32(part, before)


def test_a_checksum_is_continued() -> None:
    data = bytes(range(256)) * 9
    for cut in (0, 1, 63, 64, 65, 1000):
        assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"crc32\(data, value=0\)"):
        crc32()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        crc32("text")  # type: ignore[arg-type]
