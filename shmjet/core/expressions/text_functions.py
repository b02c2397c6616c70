"""`.str` of an expression: functions of text. What they compute stands in `docs/expressions.md`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from shmjet.data.errors import BatchError
from shmjet.data.suggestions import unknown_attribute

E = TypeVar("E")


class TextFunctions(Generic[E]):
    """Functions of a column of text; null gives null.

    Args:
        apply: makes the expression of a function's name and its options.

    Example:
        >>> from shmjet import Batch, column
        >>> from shmjet.columns.expressions import evaluate
        >>> evaluate(column("city").str.upper(), Batch({"city": ["Rome", None]})).to_list()
        ['ROME', None]
    """

    __slots__ = ("_apply",)

    def __init__(self, apply: Callable[..., E]) -> None:
        self._apply = apply

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> E:
            there = ", ".join(each for each in dir(type(self)) if not each.startswith("_"))
            error = unknown_attribute(".str of an expression", name, type(self))
            raise error if name.startswith("_") else AttributeError(f"{error}; there are {there}", name=name)

    def contains(self, pattern: str, *, literal: bool = False) -> E:
        """Whether a regular expression is found in the text.

        Args:
            pattern: as for Python's `re`, without look-around and references to groups.
            literal: it is a text to be found as it is.

        Raises:
            BatchError: the pattern is not valid, or has look-around.
            TypeError: it is not a str.
        """
        return self._apply("str.contains", pattern=checked_pattern("contains", pattern, literal), literal=bool(literal))

    def replace(self, pattern: str, value: str, *, literal: bool = False) -> E:
        r"""Put another text in place of everything that a regular expression matches.

        Args:
            pattern: as for `contains`.
            value: what comes instead. Of a regular expression, `\1` and `\g<name>` are what its groups have matched.
            literal: both are texts as they are.

        Raises:
            BatchError: the pattern is not valid, has look-around, or has no group that the value names.
            TypeError: one is not a str.
        """
        checked = checked_pattern("replace", pattern, literal)
        text = _checked("replace", "value", value)
        if not literal:
            try:
                re.compile(checked).sub(text, "")
            except (re.error, IndexError) as error:
                raise BatchError(f"replace(): {text!r} does not fit the pattern {checked!r}: {error}") from None
        return self._apply("str.replace", pattern=checked, value=text, literal=bool(literal))

    def starts_with(self, prefix: str) -> E:
        """Whether the text begins with another one. Raises TypeError when that is not a str."""
        return self._apply("str.starts_with", prefix=_checked("starts_with", "prefix", prefix))

    def ends_with(self, suffix: str) -> E:
        """Whether the text ends with another one. Raises TypeError when that is not a str."""
        return self._apply("str.ends_with", suffix=_checked("ends_with", "suffix", suffix))

    def lower(self) -> E:
        """The text in lower case, as Python has it."""
        return self._apply("str.lower")

    def upper(self) -> E:
        """The text in upper case, as Python has it."""
        return self._apply("str.upper")

    def strip(self, characters: str | None = None) -> E:
        """The text without white space, or without some characters, at both ends, as `str.strip`."""
        if characters is not None:
            _checked("strip", "characters", characters)
        return self._apply("str.strip", characters=characters)

    def split(self, by: str | None = None) -> E:
        """The pieces of the text between separators, or between runs of white space, as `str.split`: a list of text.

        Args:
            by: the separator, a text as it is.

        Raises:
            BatchError: the separator is empty.
        """
        if by is not None and not _checked("split", "by", by):
            raise BatchError("split(): the separator must not be empty; leave it out to split on white space")
        return self._apply("str.split", by=by)

    def len_chars(self) -> E:
        """The number of code points, an int64."""
        return self._apply("str.len_chars")

    def slice(self, start: int, length: int | None = None) -> E:
        """A part of the text, counted in code points.

        Args:
            start: where it begins; from the end if negative.
            length: how many, up to the end if left out.

        Raises:
            BatchError: the length is negative.
            TypeError: one is not an int.
        """
        for name, value in (("start", start), ("length", length)):
            if not (type(value) is int or (value is None and name == "length")):
                raise TypeError(f"slice(): {name} must be an int, got {value!r:.80}")
        if length is not None and length < 0:
            raise BatchError(f"slice(): length must be 0 or more, got {length}")
        return self._apply("str.slice", start=start, length=length)


def checked_pattern(function: str, pattern: object, literal: bool) -> str:
    """Return a pattern that a user gave.

    Raises:
        BatchError: it is not valid, or looks around. TypeError: it is not a str.
    """
    text = _checked(function, "pattern", pattern)
    if literal:
        return text
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BatchError(f"{function}(): {text!r} is not a regular expression: {error}; or give literal=True") from None
    if _looks_around(text):
        raise BatchError(
            f"{function}(): {text!r} has look-around or refers to a group, which no pattern of columns may; "
            "use two conditions, or map_batches() with a function of your own"
        )
    return text


def _looks_around(pattern: str) -> bool:
    from re import _constants, _parser  # type: ignore[attr-defined]

    refused = {_constants.ASSERT, _constants.ASSERT_NOT, _constants.GROUPREF, _constants.GROUPREF_EXISTS}

    def found(node: object) -> bool:
        if isinstance(node, _parser.SubPattern):
            return any(op in refused or found(argument) for op, argument in node)
        return isinstance(node, list | tuple) and any(found(each) for each in node)

    return found(_parser.parse(pattern))


def _checked(function: str, name: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{function}(): {name} must be a str, got {given!r:.80}")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise BatchError(f"{function}(): {name} is not valid Unicode: {error}") from None
    return given
