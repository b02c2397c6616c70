"""Keys by the names of columns: `partitioned(column("user"))` routes a `Batch` row by row, and items that are rows too.

For an item the key is an ordinary Python value, so a row has the same key, and the same partition, whether it travels
as a dict or inside a batch. A single column is an expression, too. Must not know batches: the router, which does, asks
for `names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from shmjet.core.expressions.expression import Expression
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError


@dataclass(frozen=True, eq=False, repr=False)
class ColumnKey(Expression):
    """A column, which is an expression and a key; or a key of several columns. Made by `column` and `columns`.

    Operators of a column make expressions, also `==`: keys are told apart by their `names`. A key of several columns is
    no expression, and `==` compares it with another key.

    Called with a row (a dict, another mapping or a named tuple) it returns the value under its name, or the tuple of
    the values under its names when there are several. So it serves wherever a key function does.

    Args:
        names: of the columns, in order; without duplicates, at least one.

    Raises:
        BatchError: a name is not a str, empty or given twice, or no name is given.

    Example:
        >>> key = columns("user", "day")
        >>> key({"user": 7, "day": "Mon", "n": 1}), key.names, key
        ((7, 'Mon'), ('user', 'day'), columns('user', 'day'))
    """

    names: tuple[str, ...]
    _values_of: itemgetter[Any] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names("a key", self.names))
        object.__setattr__(self, "_values_of", itemgetter(*self.names))

    @property
    def is_key_only(self) -> bool:
        """Whether it is a key of several columns, and so no operand of an expression."""
        return len(self.names) > 1

    def _as_operand(self) -> Expression:
        if self.is_key_only:
            raise TypeError(f"{self!r} is a key of several columns and no expression; use column(name)")
        return self

    def _label(self) -> tuple[Any, ...]:
        return ("column", *self.names)

    def __eq__(self, other: object) -> Any:
        if len(self.names) > 1:
            return isinstance(other, ColumnKey) and other.names == self.names
        return super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return not self == other if len(self.names) > 1 else super().__ne__(other)

    def __hash__(self) -> int:
        return hash(self.names)

    def __call__(self, item: Any) -> Any:
        """Return the key of a row.

        Raises:
            BatchError: the item is neither a mapping nor a named tuple, or has no such column; the text names which.
        """
        if type(item) is not dict:
            if isinstance(item, tuple) and hasattr(item, "_fields"):
                return self._of_named_tuple(item)
            self._check(item)
        try:
            return self._values_of(item)
        except KeyError:
            missing = next(name for name in self.names if name not in item)
            raise BatchError(f"{self!r}: the item has no {missing!r}; it has {list(item)}") from None

    def _of_named_tuple(self, item: Any) -> Any:
        missing = next((name for name in self.names if name not in item._fields), None)
        if missing is not None:
            raise BatchError(f"{self!r}: the item has no {missing!r}; it has {list(item._fields)}")
        values = tuple(getattr(item, name) for name in self.names)
        return values if len(values) > 1 else values[0]

    def _check(self, item: Any) -> None:
        if isinstance(item, Columnar):
            raise BatchError(
                f"{self!r} got a whole Batch where one row was expected; a key by columns routes batches on edges that "
                "have no partitioner of their own"
            )
        if not isinstance(item, Mapping):
            raise BatchError(
                f"{self!r}: expected a row as a dict or named tuple, got {type(item).__name__} {item!r:.80}; make rows "
                "of the items with map, or give a function of the item instead, such as operator.itemgetter(0) for the "
                "first value of a tuple"
            )

    @property
    def __name__(self) -> str:
        """What drawings and messages call it."""
        return repr(self)

    def __repr__(self) -> str:
        return f"{'column' if len(self.names) == 1 else 'columns'}({', '.join(map(repr, self.names))})"


def column(name: str) -> ColumnKey:
    """Return the expression, and the key, that is the value of one column.

    Args:
        name: of the column.

    Raises:
        BatchError: `name` is not a str, or empty.

    Example:
        >>> column("user")({"user": 7, "n": 1})
        7
    """
    return ColumnKey((name,))


def columns(*names: str) -> ColumnKey:
    """Return the key that is the tuple of the values of several columns; of one column it is the value, as `column`.

    Args:
        names: of the columns, in order.

    Raises:
        BatchError: a name is not a str, empty or given twice, or no name is given.

    Example:
        >>> columns("a", "b")({"a": 1, "b": "x"}), columns("a").names == column("a").names
        ((1, 'x'), True)
    """
    return ColumnKey(names)


def checked_names(of: str, names: Any, *, least: int = 1) -> tuple[str, ...]:
    """Return names of columns as a tuple, after checking them.

    Args:
        of: what they belong to, for the message.
        names: a name, any iterable of names, or a `ColumnKey`.
        least: how many there have to be.

    Raises:
        BatchError: a name is not a str, empty or given twice, or too few are given.

    Example:
        >>> checked_names("a key", ["a", "b"]), checked_names("a key", column("a"))
        (('a', 'b'), ('a',))
    """
    found = names.names if isinstance(names, ColumnKey) else (names,) if isinstance(names, str) else tuple(names)
    for place, name in enumerate(found):
        if not isinstance(name, str) or not name:
            raise BatchError(f"{of}: the name of a column must be a non-empty str, got {name!r}")
        if name in found[:place]:
            raise BatchError(f"{of}: column {name!r} is there twice in {list(found)}")
    if len(found) < least:
        raise BatchError(f"{of} needs the name of at least {least} column{'s' if least > 1 else ''}, got none")
    return found
