"""What the lines of a file that grows become: text, values of JSON, records of CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from shmjet.data.decoders import converter
from shmjet.processors.files.record_text import BadLineError, JsonLines, split_lines
from shmjet.processors.streams.file_tail import FileTail, Lines


@dataclass(frozen=True)
class LineFormat:
    """How lines become items.

    Args:
        format: "lines": text; "json": the value of each line; "csv": a dict of text for each line.
        as_: a type that values and records are made into; None: they stay as they are.
        charset, errors: of the text.
        with_path: items are pairs (path, item).
        delimiter, quote: of CSV.
    """

    format: Literal["lines", "json", "csv"]
    as_: Any = None
    charset: str = "utf-8"
    errors: str = "replace"
    with_path: bool = False
    delimiter: str = ","
    quote: str | None = '"'
    _decoders: list[JsonLines] = field(default_factory=list, compare=False, repr=False)

    def items(self, tail: FileTail, lines: Lines) -> list[Any]:
        """Return the items of whole lines of a file.

        Raises:
            ValueError: a line is not what the format says; the text names the file and the byte.
        """
        try:
            items = self._items(tail, lines)
        except BadLineError as error:
            raise ValueError(f"{tail.path}, line {error.index + 1} after byte {lines.offset}: {error}") from None
        return [(tail.path, item) for item in items] if self.with_path else items

    def _items(self, tail: FileTail, lines: Lines) -> list[Any]:
        if self.format == "json":
            if not self._decoders:
                self._decoders.append(JsonLines(self.as_, self.charset, self.errors))
            return self._decoders[0].decode(lines.data)
        text = split_lines(lines.data, self.charset, self.errors)
        return text if self.format == "lines" else self._records(tail, lines, text)

    def _records(self, tail: FileTail, lines: Lines, text: list[str]) -> list[Any]:
        """Return the records of lines of CSV; the first line of the file names the columns."""
        first = str(tail.first_line(), self.charset, self.errors)
        names = self._cut(first.removeprefix("\ufeff").removesuffix("\r"))
        start = 0 if lines.offset else 1
        convert = None if self.as_ is None else converter(self.as_, strict=False)
        records = []
        for index, line in enumerate(text[start:], start):
            if not line:
                continue
            try:
                values = self._cut(line)
            except csv.Error as error:
                raise BadLineError(index, f"{error}: {line!r:.120}") from None
            if len(values) != len(names):
                raise BadLineError(index, f"{len(values)} values for the {len(names)} columns {names}: {line!r:.120}")
            record = dict(zip(names, values, strict=True))
            records.append(record if convert is None else self._converted(index, record, convert))
        return records

    def _converted(self, index: int, record: dict[str, str], convert: Callable[[Any], Any]) -> Any:
        try:
            return convert(record)
        except msgspec.ValidationError as error:
            raise BadLineError(index, f"not a valid {getattr(self.as_, '__name__', self.as_)}: {error}") from None

    def _cut(self, line: str) -> list[str]:
        if self.quote is None:
            reader = csv.reader([line], delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        else:
            reader = csv.reader([line], delimiter=self.delimiter, quotechar=self.quote, strict=True)
        return next(reader, [])
