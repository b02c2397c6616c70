"""Expressions of columns as Spark's own columns, where both mean the same for every value.

Spark differs in what NaN equals, in the types of results, in division, in what overflows and in regular expressions.
What can be said in Spark so that nothing differs is said; for anything else `NotOnSparkError` tells why, and the
engine's own code does it. Must not know what the columns are for.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Call, Expression, Literal
from shmjet.core.expressions.trees import depth_of
from shmjet.spark.schema import Field, fields_of

INTEGERS: Final = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
FLOATS: Final = {"float32": "float", "float64": "double"}
_SAME_KIND: Final = ("bool", "text", "bytes", "date", "timestamp", "timestamp_ntz")
_WIDTH: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")
_EXACT: Final = 1 << 53


class NotOnSparkError(Exception):
    """Spark has no column that is the same; the text says why."""


@dataclass(frozen=True)
class Typed:
    """A column of Spark's, and what its values are.

    Args:
        column: of PySpark.
        kind: as of `schema.Field`; "int" and "float" for numbers of the user's, which take the type of the others.
        value: of a literal.
        is_literal: whether it is one.
    """

    column: Any
    kind: str
    value: Any = None
    is_literal: bool = False


_DEEPEST: Final = 300
"""Levels of an expression that are translated. Spark's own walks end in a `StackOverflowError` at some more."""


def _not_too_deep(expression: Expression) -> Expression:
    if depth_of(expression) > _DEEPEST:
        raise NotOnSparkError(f"an expression has more than {_DEEPEST} levels")
    return expression


class Translator:
    """Translates expressions of the columns of one DataFrame.

    Args:
        fields: the columns by name; those whose comparisons are their own (collations, char types) are left out.
        may_raise: whether the columns may fail for some values, as the engine does, with an error of Spark's.
        ansi: whether Spark raises what overflows (`spark.sql.ansi.enabled`).
    """

    def __init__(self, fields: Mapping[str, Field], *, may_raise: bool = False, ansi: bool = False) -> None:
        from pyspark.sql import functions

        self._f: Any = functions
        self.fields = fields
        self._may_raise = may_raise and ansi
        self._calls: dict[str, Callable[[Call], Typed]] = {
            **dict.fromkeys(_COMPARISONS, self._compared),
            **dict.fromkeys(("+", "-", "*"), self._computed),
            "/": self._divided,
            "//": self._floored,
            "%": self._floored,
            **dict.fromkeys(("&", "|"), self._combined),
            "~": self._inverted,
            "neg": self._signed,
            "abs": self._signed,
            "is_null": self._is_null,
            "is_not_null": self._is_null,
            "fill_null": self._filled,
            "cast": self._cast,
            "is_in": self._is_in,
            "when": self._chosen,
            "str.contains": self._contains,
            "str.starts_with": self._begins,
            "str.ends_with": self._begins,
            "str.len_chars": self._length,
            "str.slice": self._slice,
            **{f"dt.{part}": self._part for part in _PARTS},
        }

    @staticmethod
    def of(df: Any, *, may_raise: bool = False) -> Translator:
        """Return the translator for a DataFrame.

        Args:
            df: its names may not differ by case alone, because Spark takes such for the same.
            may_raise: see `Translator`.

        Raises:
            NotOnSparkError: there are such names.
        """
        fields = fields_of(df)
        check_names([field.name for field in fields])
        own = {
            field.name
            for field in df.schema.fields
            if getattr(field.dataType, "collation", "UTF8_BINARY") != "UTF8_BINARY"
            or "__CHAR_VARCHAR_TYPE_STRING" in (field.metadata or {})
        }
        ansi = str(df.sparkSession.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        known = {field.name: field for field in fields if field.name not in own}
        return Translator(known, may_raise=may_raise, ansi=ansi)

    def column(self, expression: Expression) -> Typed:
        """Return an expression as a column of Spark's.

        Raises:
            NotOnSparkError: there is none that means the same.
        """
        found = self._of(_not_too_deep(expression))
        if found.kind in ("int", "float"):
            kind = "int64" if found.kind == "int" else "float64"
            found = Typed(self._number(found, kind), kind)
        return found

    def condition(self, expression: Expression) -> Any:
        """Return a condition as a column of Spark's.

        Raises:
            NotOnSparkError: there is none that means the same.
        """
        return self._bool(self._of(_not_too_deep(expression))).column

    def plain(self, name: str) -> Typed:
        """Return a column by its name."""
        field = self.fields.get(name)
        if field is None:
            raise NotOnSparkError(f"there is no column {name!r}")
        return Typed(self._f.col(quoted(name)), field.kind)

    def _of(self, expression: Expression) -> Typed:
        if isinstance(expression, ColumnKey):
            return self.plain(expression.names[0])
        if isinstance(expression, Literal):
            return self._literal(expression.value)
        assert isinstance(expression, Call)
        make = self._calls.get(expression.function)
        if make is None:
            raise NotOnSparkError(f"{expression.function} means something else there")
        return make(expression)

    def _literal(self, value: Any) -> Typed:
        f = self._f
        kind = type(value)
        if kind is bool:
            return Typed(f.lit(value), "bool", value, True)
        if kind is int and -(1 << 63) <= value < 1 << 63:
            return Typed(None, "int", value, True)
        if kind is float:
            return Typed(None, "float", value, True)
        if kind is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise NotOnSparkError("a text has a lone surrogate") from None
            return Typed(f.lit(value), "text", value, True)
        if kind is bytes:
            return Typed(f.lit(bytearray(value)), "bytes", value, True)
        if kind is datetime.date:
            return Typed(f.lit(value.isoformat()).cast("date"), "date", value, True)
        if kind is datetime.datetime and value.tzinfo is None:
            return Typed(f.lit(value.isoformat(" ")).cast("timestamp_ntz"), "timestamp_ntz", value, True)
        if kind is datetime.datetime:
            try:
                text = value.astimezone(datetime.UTC).isoformat(" ")
            except OverflowError:
                raise NotOnSparkError(f"{value} is before the year 1 or after 9999 in UTC") from None
            return Typed(f.lit(text).cast("timestamp"), "timestamp", value, True)
        raise NotOnSparkError(f"a value of type {kind.__name__}")

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _number(self, typed: Typed, kind: str) -> Any:
        """Return a column of numbers as one of another type, which holds all its values."""
        sql = INTEGERS.get(kind) or FLOATS[kind]
        if not typed.is_literal:
            return typed.column if typed.kind == kind else typed.column.cast(sql)
        value = typed.value
        if kind in INTEGERS:
            bits = _WIDTH[kind] - 1
            if not -(1 << bits) <= value < 1 << bits:
                raise NotOnSparkError(f"{value} is not a value of {kind}")
            return self._f.lit(value).cast(sql)
        if isinstance(value, int) and abs(value) > (_EXACT if kind == "float64" else 1 << 24):
            raise NotOnSparkError(f"{value} is not a value of {kind}")
        value = float(value)
        if kind == "float32" and math.isfinite(value):
            try:
                struct.pack("f", value)
            except OverflowError:
                raise NotOnSparkError(f"{value} is not a value of float32") from None
        return self._f.lit(value).cast(sql)

    def _together(self, left: Typed, right: Typed, *, exact: bool = False) -> tuple[Any, Any, str]:
        """Return two operands as columns of one type, and that type.

        Args:
            left, right: the operands.
            exact: each value has to stay what it is.
        """
        kinds = {left.kind, right.kind}
        if left.is_literal and right.is_literal:
            raise NotOnSparkError("an operation on values alone")
        if len(kinds) == 1 and left.kind in _SAME_KIND:
            return left.column, right.column, left.kind
        for one in (left, right):
            if one.kind not in INTEGERS and one.kind not in FLOATS and one.kind not in ("int", "float"):
                raise NotOnSparkError(f"{left.kind} with {right.kind}")
        columns = [one.kind for one in (left, right) if not one.is_literal]
        whole = [kind for kind in columns if kind in INTEGERS]
        broken = [kind for kind in columns if kind in FLOATS]
        if not broken and "float" not in kinds:
            kind = max(whole, key=_WIDTH.__getitem__)
        elif broken == ["float32"] * len(columns) or ("float32" in broken and whole and _WIDTH[whole[0]] <= 16):
            kind = "float32"
        else:
            kind = "float64"
            if exact and "int64" in whole:
                raise NotOnSparkError("int64 with float64")
        return self._number(left, kind), self._number(right, kind), kind

    def _compared(self, call: Call) -> Typed:
        left, right = (self._of(each) for each in call.of)
        one, two, kind = self._together(left, right, exact=True)
        symbol = call.function
        plain = {
            "==": lambda: one == two,
            "!=": lambda: one != two,
            "<": lambda: one < two,
            "<=": lambda: one <= two,
            ">": lambda: one > two,
            ">=": lambda: one >= two,
        }[symbol]()
        if kind not in FLOATS:
            return Typed(plain, "bool")
        f = self._f
        strange = f.isnan(one) | f.isnan(two)
        missing = one.isNull() | two.isNull()
        answer = f.when(missing, f.lit(None).cast("boolean")).when(strange, f.lit(symbol == "!=")).otherwise(plain)
        return Typed(answer, "bool")

    def _computed(self, call: Call) -> Typed:
        left, right = (self._of(each) for each in call.of)
        one, two, kind = self._together(left, right)
        if kind == "text" and call.function == "+":
            return Typed(self._f.concat(one, two), kind)
        if kind in INTEGERS:
            self._raises("integers may overflow")
        elif kind not in FLOATS:
            raise NotOnSparkError(f"{call.function} of {kind}")
        made = one + two if call.function == "+" else one - two if call.function == "-" else one * two
        return Typed(made, kind)

    def _divided(self, call: Call) -> Typed:
        """Divide as IEEE 754 has it; Spark makes an error or null of a division by zero."""
        f = self._f
        left, right = (self._of(each) for each in call.of)
        one, two, kind = self._together(left, right)
        if kind not in FLOATS:
            raise NotOnSparkError("division of integers")
        is_negative = f.startswith(two.cast("string"), f.lit("-"))  # nothing else there tells 0.0 from -0.0
        endless = f.when(is_negative, f.lit(-math.inf)).otherwise(f.lit(math.inf))
        made = f.when(two == 0, one.cast("double") * endless).otherwise(one.cast("double") / two.cast("double"))
        return Typed(made.cast(FLOATS[kind]), kind)

    def _floored(self, call: Call) -> Typed:
        """Divide integers downwards, as Python does; by 0 it is null."""
        f = self._f
        left, right = (self._of(each) for each in call.of)
        one, two, kind = self._together(left, right)
        if kind not in INTEGERS:
            raise NotOnSparkError(f"{call.function} of {kind}")
        self._raises("the least integer by -1 overflows")
        sql = INTEGERS[kind]
        rest = one % two
        is_off = (rest != 0) & ((rest < 0) != (two < 0))
        if call.function == "%":
            # the least integer by -1 has no rest, and the processor cannot compute it
            made = f.when(two == -1, f.lit(0)).otherwise(f.when(is_off, rest + two).otherwise(rest))
        else:
            down = f.call_function("div", one, two)
            made = f.when(is_off, down - 1).otherwise(down)
        missing = f.lit(None).cast(sql)
        return Typed(f.when(one.isNull() | two.isNull() | (two == 0), missing).otherwise(made.cast(sql)), kind)

    def _signed(self, call: Call) -> Typed:
        found = self._of(call.of[0])
        if found.is_literal or (found.kind not in INTEGERS and found.kind not in FLOATS):
            raise NotOnSparkError(f"{call.function} of {found.kind}")
        if found.kind in INTEGERS:
            self._raises("the least integer has no opposite")
        return Typed(-found.column if call.function == "neg" else self._f.abs(found.column), found.kind)

    def _cast(self, call: Call) -> Typed:
        found = self._of(call.of[0])
        kind = _kind_word(call.option("type"))
        if found.is_literal:
            raise NotOnSparkError("a cast of a value")
        if kind == found.kind:
            return found
        if found.kind == "bool" and (kind in INTEGERS or kind in FLOATS):
            return Typed(found.column.cast(INTEGERS.get(kind) or FLOATS[kind]), kind)
        numbers = (*INTEGERS, *FLOATS)
        if found.kind not in numbers or kind not in numbers:
            raise NotOnSparkError(f"a cast of {found.kind} to {call.option('type')!r}")
        widens = found.kind in INTEGERS and (kind == "float64" or _WIDTH.get(kind, 0) >= _WIDTH[found.kind])
        if not widens and (found.kind, kind) != ("float32", "float64"):
            self._raises("a value may not fit")
            if kind == "float32":
                raise NotOnSparkError("a cast to float32")
        return Typed(found.column.cast(INTEGERS.get(kind) or FLOATS[kind]), kind)

    def _raises(self, why: str) -> None:
        """Take that Spark has to raise an error for some values.

        Raises:
            NotOnSparkError: it does not, or must not.
        """
        if not self._may_raise:
            raise NotOnSparkError(why)

    # -- truth and nulls -----------------------------------------------------------------------------------------------

    def _bool(self, typed: Typed) -> Typed:
        if typed.kind != "bool":
            raise NotOnSparkError(f"a condition of type {typed.kind}")
        return typed

    def _combined(self, call: Call) -> Typed:
        one, two = (self._bool(self._of(each)).column for each in call.of)
        return Typed(one & two if call.function == "&" else one | two, "bool")

    def _inverted(self, call: Call) -> Typed:
        return Typed(~self._bool(self._of(call.of[0])).column, "bool")

    def _is_null(self, call: Call) -> Typed:
        found = self.column(call.of[0])
        made = found.column.isNull() if call.function == "is_null" else found.column.isNotNull()
        return Typed(made, "bool")

    def _filled(self, call: Call) -> Typed:
        left, right = (self._of(each) for each in call.of)
        one, two, kind = self._together(left, right, exact=True)
        return Typed(self._f.coalesce(one, two), kind)

    def _is_in(self, call: Call) -> Typed:
        f = self._f
        found = self._of(call.of[0])
        missing = f.lit(None).cast("boolean")
        values = [self._literal(value) for value in call.option("values")]
        if any(value.kind == "float" and math.isnan(value.value) for value in values) or found.is_literal:
            raise NotOnSparkError("is_in() with NaN, or of a value")
        made = f.lit(False)
        if values:
            pairs = [self._together(found, value, exact=True) for value in values]
            made = pairs[0][0].isin([two for _, two, _ in pairs])
            if len({kind for _, _, kind in pairs}) > 1:
                raise NotOnSparkError("is_in() of values of several types")
        return Typed(f.when(found.column.isNull(), missing).otherwise(made), "bool")

    def _chosen(self, call: Call) -> Typed:
        *pairs, last = call.of
        conditions = [self._bool(self._of(each)).column for each in pairs[::2]]
        results = [None if _is_none(each) else self._of(each) for each in (*pairs[1::2], last)]
        there = [each for each in results if each is not None]
        columns = {each.kind for each in there if not each.is_literal or each.kind in _SAME_KIND}
        words = {each.kind for each in there} - columns
        if len(columns) > 1 or not there or (columns & set(_SAME_KIND) and words):
            raise NotOnSparkError("branches of several types")
        if columns:
            (kind,) = columns
            if kind in INTEGERS and "float" in words:
                raise NotOnSparkError("branches of several types")
        else:
            kind = "float64" if "float" in words else "int64"
        if kind not in (*INTEGERS, *FLOATS, *_SAME_KIND):
            raise NotOnSparkError(f"branches of type {kind}")
        sql = INTEGERS.get(kind) or FLOATS.get(kind)
        made = [
            self._f.lit(None) if each is None else self._number(each, kind) if sql else each.column for each in results
        ]
        chosen = self._f.when(conditions[0], made[0])
        for condition, value in zip(conditions[1:], made[1:-1], strict=True):
            chosen = chosen.when(condition, value)
        return Typed(chosen.otherwise(made[-1]), kind)

    # -- text and dates ------------------------------------------------------------------------------------------------

    def _text(self, call: Call) -> Any:
        found = self._of(call.of[0])
        if found.kind != "text":
            raise NotOnSparkError(f"{call.function} of {found.kind}")
        return found.column

    def _contains(self, call: Call) -> Typed:
        pattern = call.option("pattern")
        if not call.option("literal") and _SPECIAL & set(pattern):
            raise NotOnSparkError("regular expressions differ")
        return Typed(self._f.contains(self._text(call), self._literal(pattern).column), "bool")

    def _begins(self, call: Call) -> Typed:
        if call.function == "str.starts_with":
            return Typed(self._f.startswith(self._text(call), self._literal(call.option("prefix")).column), "bool")
        return Typed(self._f.endswith(self._text(call), self._literal(call.option("suffix")).column), "bool")

    def _length(self, call: Call) -> Typed:
        return Typed(self._f.char_length(self._text(call)).cast("bigint"), "int64")

    def _slice(self, call: Call) -> Typed:
        start, length = call.option("start"), call.option("length")
        if not 0 <= start < 1 << 30 or (length is not None and length >= 1 << 30):
            raise NotOnSparkError("a slice from the end")
        return Typed(
            self._f.substring(self._text(call), start + 1, (1 << 31) - 1 if length is None else length), "text"
        )

    def _part(self, call: Call) -> Typed:
        f = self._f
        part = call.function.removeprefix("dt.")
        found = self._of(call.of[0])
        if found.kind != "date" and (found.kind != "timestamp_ntz" or found.is_literal):
            raise NotOnSparkError(f"{call.function} of {found.kind}")
        if found.kind == "date" and part in ("hour", "minute", "second"):
            raise NotOnSparkError(f"{call.function} of a date")
        made = getattr(f, _PARTS[part])(found.column)
        return Typed((made + 1 if part == "weekday" else made).cast("bigint"), "int64")


_PARTS: Final = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "dayofmonth",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "weekday": "weekday",
    "ordinal_day": "dayofyear",
}


def check_names(names: Sequence[str]) -> None:
    """Raise NotOnSparkError where two names differ by case alone: Spark takes them for the same."""
    if len({name.casefold() for name in names}) < len(names):
        raise NotOnSparkError("names that differ by case alone")


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it, dots and all.

    Example:
        >>> quoted("a.b`c")
        '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


def _is_none(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is None


def _kind_word(word: Any) -> str:
    """Return the kind that the user's word for a type stands for; of others the word as text."""
    plain = {
        int: "int64",
        float: "float64",
        bool: "bool",
        str: "text",
        bytes: "bytes",
        "int": "int64",
        "float": "float64",
    }
    try:
        if word in plain:
            return plain[word]
    except TypeError:
        pass
    if isinstance(word, type):
        return str(getattr(word, "__name__", word))
    return str(word)
