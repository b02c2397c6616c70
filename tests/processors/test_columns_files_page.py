"""What `docs/columns-files.md` says is so."""

from __future__ import annotations

import re
from pathlib import Path

from shmjet import processors
from shmjet.processors.csv import batch_reader, csv_format, schema_inference
from shmjet.processors.files import npy_reader

PAGE = (Path(__file__).parents[2] / "docs" / "columns-files.md").read_text()


def test_every_processor_of_the_page_exists() -> None:
    named = re.findall(r"^\| `(\w+)\(", PAGE.partition("| type in the schema |")[0], re.M)
    assert named
    for name in named:
        assert name in processors.__all__


def test_every_type_of_the_page_can_be_in_a_schema() -> None:
    rows = re.findall(r"^\| (`(?:int8|float16|bool|datetime64|timedelta64|text).*?) \|", PAGE, re.M)
    names = [name for row in rows for name in re.findall(r"`([a-z]+[\d\[\w\]]*)`", row)]
    assert {"int8", "uint64", "float16", "bool", "datetime64[D]", "text", "bytes"} <= set(names)
    for name in names:
        assert csv_format.column_type("c", name).name == name


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"first {schema_inference.SAMPLE_ROWS:,} records (or {schema_inference.SAMPLE_BYTES >> 20} MiB)" in PAGE
    assert f"more than {batch_reader.LARGEST_RECORD >> 20} MiB is always an error" in PAGE
    assert f"file of {npy_reader.SMALLEST_MAPPING >> 20} MiB or more is mapped" in PAGE
