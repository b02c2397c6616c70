"""CRC-32 as gzip, zlib and zip files have it, by the processor's own instructions where it has them."""

from __future__ import annotations

from shmjet._native import CRC32_IS_FAST

if CRC32_IS_FAST:
    from shmjet._native import crc32 as crc32
else:
    from zlib import crc32 as crc32
