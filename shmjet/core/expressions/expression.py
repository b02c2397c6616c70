"""`Expression`: the base of columns, literals and calls, with Python's operators.

An expression is immutable. `==` makes another expression, so nothing here is compared by it; `same_as` tells whether
two are the same, and hashing goes by identity.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from shmjet.core.expressions.advice import attribute_advice
from shmjet.core.expressions.date_functions import DateFunctions
from shmjet.core.expressions.numpy_functions import PREFIX, NumpyFunctions
from shmjet.core.expressions.text_functions import TextFunctions
from shmjet.core.expressions.trees import number_of, operands_first, shown
from shmjet.data.errors import BatchError
from shmjet.data.suggestions import meant_type, unknown_attribute

INFIX: Final = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^")
"""Functions of two operands that are written between them."""

_SCALARS: Final = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    datetime.date,
    datetime.timedelta,
    decimal.Decimal,
    type(None),
)


class Expression(NumpyFunctions):
    """What is computed of each row of a batch: a column, a literal, or a function of other expressions.

    `shmjet.column("x")` is one. Python's operators make others: `+ - * / // % **`, comparisons, `& | ^ ~` (by SQL's
    three-valued logic), `-`, `abs()`. An operand that is not an expression is a value: a str is text, None a null.

    Example:
        >>> from shmjet import column
        >>> net = column("price") * (1 - column("discount"))
        >>> net, net.names, net.output_name
        ((column('price') * (1 - column('discount'))), ('price', 'discount'), 'price')
    """

    __iter__ = None  # neither `in` nor tuple() take it for a sequence

    names: tuple[builtins.str, ...]
    """The columns that are read, in the order in which they are written."""

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that this one is a function of."""
        return ()

    @property
    def output_name(self) -> builtins.str:
        """The name of the result where none is given: that of the first column.

        Raises:
            BatchError: no column is read.
        """
        if not self.names:
            raise BatchError(f"{self!r} reads no column, so its result needs a name: name=expression")
        return self.names[0]

    @property
    def __name__(self) -> builtins.str:
        """What drawings and messages call it."""
        return repr(self)

    def __call__(self, item: Any) -> Any:
        raise BatchError(
            f"{self!r} is computed of batches, and got an item of type {type(item).__name__}; give it to filter(), "
            "select() or with_columns() of a stage of batches (to_batches() makes one), or write a function of the item"
        )

    def same_as(self, other: Expression) -> bool:
        """Whether another expression computes the same of the same columns, written in the same way.

        Example:
            >>> from shmjet import column
            >>> (column("a") + 1).same_as(column("a") + 1), (column("a") + 1).same_as(column("a") + 1.0)
            (True, False)
        """
        numbers: dict[Any, int] = {}
        return number_of(self, numbers, {}) == number_of(other, numbers, {})

    def _label(self) -> tuple[Any, ...]:
        """What tells this node from others with the same operands; can be hashed."""
        raise NotImplementedError

    def _as_operand(self) -> Expression:
        """This; a key of several columns raises TypeError."""
        return self

    def _call(self, function: builtins.str, *others: Any, **options: Any) -> Expression:
        operands = (self._as_operand(), *(as_expression(other) for other in others))
        return Call(function, operands, tuple(options.items()))

    def _infix(self, symbol: builtins.str, other: Any) -> Expression:
        return Call(symbol, (self._as_operand(), as_expression(other)))

    def _reflected(self, symbol: builtins.str, other: Any) -> Expression:
        return Call(symbol, (as_expression(other), self._as_operand()))

    # -- operators -----------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        return self._infix("==", other)

    def __ne__(self, other: object) -> Any:
        return self._infix("!=", other)

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __lt__(self, other: Any) -> Expression:
        return self._infix("<", other)

    def __le__(self, other: Any) -> Expression:
        return self._infix("<=", other)

    def __gt__(self, other: Any) -> Expression:
        return self._infix(">", other)

    def __ge__(self, other: Any) -> Expression:
        return self._infix(">=", other)

    def __add__(self, other: Any) -> Expression:
        return self._infix("+", other)

    def __radd__(self, other: Any) -> Expression:
        return self._reflected("+", other)

    def __sub__(self, other: Any) -> Expression:
        return self._infix("-", other)

    def __rsub__(self, other: Any) -> Expression:
        return self._reflected("-", other)

    def __mul__(self, other: Any) -> Expression:
        return self._infix("*", other)

    def __rmul__(self, other: Any) -> Expression:
        return self._reflected("*", other)

    def __truediv__(self, other: Any) -> Expression:
        return self._infix("/", other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._reflected("/", other)

    def __floordiv__(self, other: Any) -> Expression:
        return self._infix("//", other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return self._reflected("//", other)

    def __mod__(self, other: Any) -> Expression:
        return self._infix("%", other)

    def __rmod__(self, other: Any) -> Expression:
        return self._reflected("%", other)

    def __pow__(self, other: Any) -> Expression:
        return self._infix("**", other)

    def __rpow__(self, other: Any) -> Expression:
        return self._reflected("**", other)

    def __and__(self, other: Any) -> Expression:
        return self._infix("&", other)

    def __rand__(self, other: Any) -> Expression:
        return self._reflected("&", other)

    def __or__(self, other: Any) -> Expression:
        return self._infix("|", other)

    def __ror__(self, other: Any) -> Expression:
        return self._reflected("|", other)

    def __xor__(self, other: Any) -> Expression:
        return self._infix("^", other)

    def __rxor__(self, other: Any) -> Expression:
        return self._reflected("^", other)

    def __neg__(self) -> Expression:
        return self._call("neg")

    def __pos__(self) -> Expression:
        return self._call("pos")

    def __abs__(self) -> Expression:
        return self._call("abs")

    def __invert__(self) -> Expression:
        return self._call("~")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is an expression of columns and neither true nor false; use & | ~ instead of and, or, not "
            "(with parentheses around comparisons), and .is_in(values) instead of in"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: builtins.str) -> Any:
            raise unknown_attribute("an expression", name, type(self), attribute_advice())

        def __round__(self, digits: int = 0) -> Any:
            raise TypeError(
                f"{self!r} cannot be rounded to digits; numpy.rint(expression) rounds to integers, and "
                "map_batches(fn) takes functions of numpy, such as numpy.round"
            )

    # -- functions -----------------------------------------------------------------------------------------------------

    def is_null(self) -> Expression:
        """True where this is null, elsewhere False."""
        return self._call("is_null")

    def is_not_null(self) -> Expression:
        """False where this is null, elsewhere True."""
        return self._call("is_not_null")

    def fill_null(self, value: Any) -> Expression:
        """This, and where it is null another value.

        Args:
            value: a value or an expression; types promote as in numpy.

        Raises:
            BatchError: the value is None.
        """
        if value is None:
            raise BatchError("fill_null() takes a value or an expression, got None")
        return self._call("fill_null", value)

    def cast(self, type: Any) -> Expression:  # noqa: A002 - the word of Jet, Spark and polars
        """This as another type.

        Args:
            type: a numpy dtype, `int`, `float`, `bool`, `str`, `bytes`, `decimal.Decimal`, a type of columns, or its
                text, such as "decimal(15, 2)".

        A value that does not fit is a `BatchError` when it comes. Fractions are cut off.

        Raises:
            BatchError: it is not a type.
        """
        from shmjet.data.column_types import kind_of  # only here, as it needs numpy

        try:
            kind_of("cast", type)
        except BatchError:
            raise BatchError(
                f"cast() takes a type of columns, such as int, 'float32' or str, got {type!r:.80}{meant_type(type)}"
            ) from None
        return self._call("cast", type=type)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether this is equal to one of some values; null where it is null, and nulls among the values match nothing.

        Args:
            values: a list, a set, an array or a column.

        Raises:
            TypeError: it is a str, an expression, or cannot be iterated.
        """
        if isinstance(values, str | bytes | Expression) or not hasattr(values, "__iter__"):
            raise TypeError(f"is_in() takes a list or another collection of values, got {values!r:.80}")
        there = getattr(values, "drop_null", None)  # a column: its own values, not Python's
        found = tuple(values if there is None else there())
        return self._call("is_in", values=tuple(_checked_scalar(value) for value in found if value is not None))

    @property
    def str(self) -> TextFunctions[Expression]:
        """Functions of text: `column("city").str.upper()`."""
        return TextFunctions(self._call)

    @property
    def dt(self) -> DateFunctions[Expression]:
        """Functions of dates and times: `column("day").dt.year()`."""
        return DateFunctions(self._call)


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expression):
    """A value that is the same for all rows.

    Args:
        value: a scalar of Python or numpy; None is a null.
    """

    value: Any
    names: tuple[str, ...] = field(default=(), init=False)

    def _label(self) -> tuple[Any, ...]:
        return ("literal", *_value_label(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expression):
    """A function of expressions.

    Args:
        function: its name: an operator, or that of the method, such as "str.upper".
        of: the operands.
        options: what else the function needs, by name.
    """

    function: str
    of: tuple[Expression, ...]
    options: tuple[tuple[str, Any], ...] = ()
    names: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(dict.fromkeys(name for each in self.of for name in each.names)))

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The expressions that this one is a function of."""
        return self.of

    def option(self, name: str) -> Any:
        """Return one of the options."""
        return dict(self.options)[name]

    def _label(self) -> tuple[Any, ...]:
        return (self.function, *((name, _value_label(value)) for name, value in self.options))

    def __repr__(self) -> str:
        return shown(self, _parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tree as a list, because pickle follows what is nested only to some depth."""
        nodes = operands_first(self)
        places = {id(node): place for place, node in enumerate(nodes)}
        return _rebuilt, ([_packed(node, places) for node in nodes],)


def _packed(node: Expression, places: dict[int, int]) -> Any:
    """Return a call as its class, function, places of operands, and options; another node as it is."""
    if not isinstance(node, Call):
        return node
    return type(node), node.function, tuple(places[id(each)] for each in node.of), node.options


def _rebuilt(nodes: list[Any]) -> Expression:
    """Return the last expression of a list that `Call.__reduce__` has made."""
    made: list[Expression] = []
    for node in nodes:
        if isinstance(node, tuple):
            kind, function, operands, options = node
            node = kind(function, tuple(made[place] for place in operands), options)
        made.append(node)
    return made[-1]


def _parts(node: Expression) -> list[Any]:
    """Return what an expression is shown as: text, and the expressions in it."""
    if not isinstance(node, Call):
        return [repr(node)]
    first, *rest = node.of
    if node.function in INFIX:
        return ["(", first, f" {node.function} ", *rest, ")"]
    if node.function in ("neg", "pos", "~"):
        return [{"neg": "-", "pos": "+"}.get(node.function, "~"), first]
    if node.function == "abs" or node.function.startswith(PREFIX):
        return [f"{node.function}(", first, ")"]
    if node.function == "when":
        parts: list[Any] = []
        for condition, value in zip(node.of[:-1:2], node.of[1::2], strict=True):
            parts += [".when(" if parts else "when(", condition, ").then(", value, ")"]
        return [*parts, ".otherwise(", node.of[-1], ")"]
    options = [_shown_option(node.function, name, value) for name, value in node.options if value is not None]
    arguments = [*rest, *(text for text in options if text)]
    separated = [part for each in arguments for part in (", ", each)][1:]
    return [first, f".{node.function}(", *separated, ")"]


def _shown_option(function: str, name: str, value: Any) -> str:
    if name == "literal":
        return "literal=True" if value else ""
    if name == "values":
        return f"[{', '.join(map(repr, value[:8]))}{', ...' if len(value) > 8 else ''}]"
    if name == "type":
        return value.__name__ if isinstance(value, type) else repr(str(value))
    return repr(value)


def as_expression(given: Any) -> Expression:
    """Return an operand as an expression: a value becomes a literal.

    Raises:
        TypeError: it is neither an expression nor a value.

    Example:
        >>> as_expression("text")
        'text'
    """
    if isinstance(given, Expression):
        return given._as_operand()
    return Literal(_checked_scalar(given))


def _checked_scalar(given: Any) -> Any:
    if isinstance(given, _SCALARS) or (hasattr(given, "dtype") and getattr(given, "ndim", None) == 0):
        return given
    what = "a column of values" if hasattr(given, "dtype") else f"{given!r:.80} of type {type(given).__name__}"
    raise TypeError(f"an expression is made of columns and single values, got {what}")


def _value_label(value: Any) -> tuple[Any, ...]:
    """What tells a value from others, also where they are equal: 1, 1.0 and True, 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(_value_label(each) for each in value)
    return (type(value).__module__, type(value).__qualname__, str(getattr(value, "dtype", "")), repr(value))
