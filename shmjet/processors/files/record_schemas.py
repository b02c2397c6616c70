"""The schema of packed or remote CSV files: inferred from a sample that is unpacked into a temporary file.

Loaded only by jobs that read files into batches: what it imports needs numpy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from shmjet.data.errors import BatchError
from shmjet.processors.csv.csv_format import CsvFormat
from shmjet.processors.csv.schema_inference import SAMPLE_BYTES, infer_schema
from shmjet.processors.files.compression import UnpackedStream, compression_of
from shmjet.processors.files.file_batches import Format
from shmjet.processors.files.paths import open_file
from shmjet.processors.files.record_reader import PIECE, is_stream, temporary_file


def prepared(format_: Format, files: Sequence[tuple[str, int]], options: Mapping[str, Any]) -> Format:
    """Return the format once the files are known: with a schema, if it was to be inferred.

    Raises:
        BatchError: see `infer_schema`. OSError: a file cannot be read.
    """
    if not isinstance(format_, CsvFormat) or format_.schema is not None:
        return format_
    for path, size in files:
        if not is_stream(path):
            found = infer_schema([(path, size)], format_)
            if found.schema is not None:
                return found
            continue
        spool = temporary_file()
        try:
            if copied := _copy(path, options, spool):
                place = f"/proc/self/fd/{spool}"
                try:
                    found = infer_schema([(place, copied)], format_)
                except BatchError as error:
                    error.args = (str(error).replace(place, path),)
                    raise
                if found.schema is not None:
                    return found
        finally:
            os.close(spool)
    return format_


def _copy(path: str, options: Mapping[str, Any], spool: int) -> int:
    """Copy the beginning of a file; a little more than the sample, so that the sample does not end the file."""
    stream, copied = UnpackedStream(open_file(path, options), compression_of(path), path), 0
    try:
        while copied <= SAMPLE_BYTES and (data := stream.read(PIECE)):
            copied += os.pwrite(spool, data, copied)
    finally:
        stream.close()
    return copied
