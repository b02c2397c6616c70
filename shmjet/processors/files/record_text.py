"""The conversion of lines to items: plain text, or the values of JSON lines.

Must not know: where lines come from, and which files they are cut out of; who calls says where an error is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from shmjet._native._columns import count_json_lines
from shmjet.data.decoders import converter, json_decoder

_SHOWN = 120


class BadLineError(ValueError):
    """A line is not what its format says; `index` counts from 0 within the lines that were given."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def split_lines(data: bytes | memoryview, encoding: str, errors: str) -> list[str]:
    """Return the lines of whole lines of text, without their ends, as Python's text mode cuts them.

    Example:
        >>> split_lines(b"a\\r\\nb\\rc\\n", "utf-8", "strict")
        ['a', 'b', 'c']
    """
    text = str(data, encoding, errors)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


class JsonLines:
    """Decodes JSON lines.

    A piece of many lines is decoded at once by msgspec; where it refuses one, line by line, by msgspec and by Python's
    own module (which knows `NaN`), so that the line at fault is found.

    Args:
        as_: type of the values, for msgspec (a dataclass, say); None: plain dicts, lists, numbers and so on.
        encoding, errors: of the lines.

    Example:
        >>> JsonLines(None, "utf-8", "strict").decode(b'{"a": 1}\\n\\n[2]\\n')
        [{'a': 1}, [2]]
    """

    def __init__(self, as_: Any, encoding: str, errors: str) -> None:
        self._as = as_
        self._encoding = encoding
        self._errors = errors
        self._is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        decoder = json_decoder(Any if as_ is None else as_)
        self._decode_lines: Callable[[bytes], list[Any]] = decoder.decode_lines
        self._decode: Callable[[str], Any] = decoder.decode

    def decode(self, data: bytes | memoryview) -> list[Any]:
        """Return the values of whole lines; empty lines have none.

        Raises:
            BadLineError: a line is not JSON, is not of the type wanted, or is null, which is not an item.
        """
        if self._is_utf8:
            whole = bytes(data)
            try:
                values = self._decode_lines(whole)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # look closer
            else:
                # msgspec takes several values of one line, and values of several lines, too
                if count_json_lines(whole) == len(values) and not any(value is None for value in values):
                    return values
        lines = split_lines(data, self._encoding, self._errors)
        return [self._one(index, line) for index, line in enumerate(lines) if line and not line.isspace()]

    def _one(self, index: int, line: str) -> Any:
        try:
            value = self._decode(line)
        except msgspec.ValidationError as error:
            if self._as is None:
                value = self._by_python(index, line)
            else:
                raise BadLineError(index, f"{error}: {_shown(line)}") from None
        except msgspec.DecodeError:
            value = self._by_python(index, line)
            if self._as is not None:
                value = self._converted(index, value, line)
        if value is None:
            raise BadLineError(index, "null is not an item; leave such lines out")
        return value

    def _by_python(self, index: int, line: str) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            raise BadLineError(index, f"no JSON: {error}: {_shown(line)}") from None

    def _converted(self, index: int, value: Any, line: str) -> Any:
        try:
            return converter(self._as)(value)
        except msgspec.ValidationError as error:
            raise BadLineError(index, f"{error}: {_shown(line)}") from None


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")
