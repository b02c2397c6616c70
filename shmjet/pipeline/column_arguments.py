"""Checks of the arguments of stages of batches: names of columns, expressions, and keys.

Must not know the graph, nor how expressions are computed. A wrong argument is an error at the user's own line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from shmjet.columns.aggregates import Aggregate
from shmjet.core.column_key import ColumnKey, checked_names
from shmjet.core.expressions import Condition, DateFunctions, Expression, TextFunctions, as_expression
from shmjet.data.errors import BatchError
from shmjet.pipeline import transforms as t

Outputs = tuple[tuple[str, Any], ...]
"""Names and expressions of columns that a stage makes."""

HOW: Final = get_args(t.ColumnsHow)


def is_expression(given: Any) -> bool:
    """Tell whether an argument is an expression of columns, and so no function of an item."""
    return isinstance(given, Expression)


def names_columns(given: Any) -> bool:
    """Tell whether an argument names columns: a name, an expression, or a sequence of names.

    Example:
        >>> names_columns("a"), names_columns(["a", "b"]), names_columns(len)
        (True, True, False)
    """
    return isinstance(given, str | list | tuple) or is_expression(given)


def column_names(stage: str, given: Iterable[Any], *, least: int = 1) -> tuple[str, ...]:
    """Return the names of columns that are given as names, sequences of names, or `column(...)`.

    Args:
        stage: what they are for, for the message.
        given: the arguments.
        least: how many names there have to be.

    Raises:
        BatchError: a name is not a non-empty str or is given twice, or there are too few.

    Example:
        >>> column_names("sort", ["a", ["b", "c"]])
        ('a', 'b', 'c')
    """
    found: list[Any] = []
    for each in given:
        if isinstance(each, ColumnKey):
            found += each.names
        elif isinstance(each, Sequence) and not isinstance(each, str):
            found += column_names(stage, each, least=0)
        elif not isinstance(each, str):
            raise TypeError(
                f"{stage}: expected the name of a column, got {type(each).__name__}: {each!r:.80}; "
                "with_columns(name=expression) gives an expression one"
            )
        else:
            found.append(each)
    return checked_names(stage, found, least=least)


def check_group_keys(given: Iterable[Any], options: Mapping[str, Any]) -> None:
    """Raise TypeError if a key of groups is an expression, given by position or by name."""
    computed = [("name", each) for each in given if is_expression(each) and not isinstance(each, ColumnKey)]
    computed += [(name, each) for name, each in options.items() if is_expression(each)]
    for name, each in computed:
        raise TypeError(
            f"group_by: expected the names of columns, got {each!r:.80}; with_columns({name}=...) makes a column "
            f"of it, and group_by({name!r}) groups by that"
        )


def checked_outputs(stage: str, given: Iterable[Any], named: Mapping[str, Any]) -> Outputs:
    """Return the columns that a stage makes.

    Args:
        stage: which, for the message.
        given: names and expressions; an expression without a name has that of its first column.
        named: name → expression, name of a column, or a number and the like for all rows.

    Raises:
        BatchError: there are none, or two have the same name. TypeError: one is something else.

    Example:
        >>> [name for name, _ in checked_outputs("select", ["a"], {"b": "c"})]
        ['a', 'b']
    """
    outputs: list[tuple[str, Any]] = []
    for each in given:
        if isinstance(each, ColumnKey):
            outputs += [(name, ColumnKey((name,))) for name in each.names]
        elif is_expression(each):
            outputs.append((each.output_name, each))
        elif isinstance(each, str | list | tuple):
            outputs += [(name, ColumnKey((name,))) for name in column_names(stage, [each])]
        else:
            raise TypeError(f"{stage}: expected names of columns and expressions, got {_shown(each)}{_advice(each)}")
    for name, each in named.items():
        outputs.append((name, _as_expression(stage, name, each)))
    names = [name for name, _ in outputs]
    if not all(names):
        raise BatchError(f"{stage}: the name of a column must be a non-empty str, got ''")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise BatchError(f"{stage}: two columns would be called {twice!r}; give one another name: name=expression")
    if not outputs:
        raise BatchError(f"{stage}: expected at least one column, got none")
    return tuple(outputs)


def _as_expression(stage: str, name: str, given: Any) -> Any:
    if isinstance(given, str):
        return ColumnKey((given,))
    if is_expression(given):
        if isinstance(given, ColumnKey) and len(given.names) > 1:
            raise TypeError(f"{stage}({name}=...): {given!r} is a key of several columns; use column(name)")
        return given
    try:
        return as_expression(given)
    except TypeError:
        raise TypeError(
            f"{stage}({name}=...): expected an expression such as column('price') * 2, got {_shown(given)}"
            f"{_advice(given)}"
        ) from None


def _advice(given: Any) -> str:
    if isinstance(given, Aggregate):
        return "; aggregates go into group_by(...).agg(name=...)"
    if isinstance(given, Condition):
        return "; it needs its value: when(...).then(...)"
    function = getattr(given, "__name__", "")
    if isinstance(getattr(given, "__self__", None), DateFunctions | TextFunctions):
        return f"; it lacks its parentheses: {function}()"
    if callable(given):
        return "; functions go into map() (of rows) or map_batches()"
    if hasattr(given, "__len__"):
        return "; a column comes with the rows: make it part of the source, or join it"
    return ""


def join_keys(on: Any, left_on: Any, right_on: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the key columns on both sides of a join.

    Args:
        on: names that both sides have, or left name → right name.
        left_on, right_on: instead, the names on each side, equally many.

    Raises:
        TypeError: both ways are used, or neither. BatchError: the names are wrong.

    Example:
        >>> join_keys("k", None, None), join_keys(None, ["a"], "b")
        ((('k',), ('k',)), (('a',), ('b',)))
    """
    if on is not None:
        if left_on is not None or right_on is not None:
            raise TypeError("join: give either on= or left_on= and right_on=")
        if isinstance(on, Mapping):
            return column_names("join: on", on), column_names("join: on", on.values())
        names = column_names("join: on", [on])
        return names, names
    if left_on is None or right_on is None:
        raise TypeError("join: the key columns are missing: give on=, or both left_on= and right_on=")
    left, right = column_names("join: left_on", [left_on]), column_names("join: right_on", [right_on])
    if len(left) != len(right):
        raise BatchError(f"join: left_on names {len(left)} columns and right_on {len(right)}: {left} and {right}")
    return left, right


def checked_how(how: Any, allowed: Sequence[str] = HOW) -> Any:
    """Return which rows a join gives. Raises ValueError when it is none of those."""
    if how not in allowed:
        raise ValueError(f"join: how must be one of {', '.join(map(repr, allowed))}, got {how!r}")
    return how


def flags(names: Sequence[str], descending: Any) -> tuple[bool, ...]:
    """Return for each column to sort by whether it descends.

    Raises:
        BatchError: there are not as many flags as names.
    """
    if isinstance(descending, Sequence) and not isinstance(descending, str):
        if len(descending) != len(names):
            raise BatchError(f"sort: descending has {len(descending)} flags for the columns {list(names)}")
        return tuple(bool(flag) for flag in descending)
    return (bool(descending),) * len(names)


def is_column_join(keys: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Tell whether the arguments of `join` are those of a join of batches by columns."""
    if options.keys() & {"on", "left_on", "right_on", "how", "suffix"}:
        return True
    if len(keys) == 1 and "right_key" not in options:
        return names_columns(keys[0]) or isinstance(keys[0], Mapping)
    return len(keys) == 2 and all(isinstance(key, str) for key in keys)


def column_join(keys: Sequence[Any], options: Mapping[str, Any]) -> t.JoinColumns:
    """Return a join of batches of the arguments of `join`.

    Raises:
        TypeError, ValueError, BatchError: one is wrong.
    """
    unknown = next((name for name in options if name not in ("on", "left_on", "right_on", "how", "suffix")), None)
    if unknown is not None:
        raise TypeError(f"join: {unknown}= does not go together with a join by columns, whose keys are on=")
    if len(keys) > 2 or (keys and "on" in options):
        raise TypeError("join: expected the other stage and on=, or left_on= and right_on=")
    if len(keys) == 2:
        names = join_keys(options.get("on"), *keys)
    else:
        names = join_keys(keys[0] if keys else options.get("on"), options.get("left_on"), options.get("right_on"))
    suffix = options.get("suffix")
    if suffix is not None and (not isinstance(suffix, str) or not suffix):
        raise TypeError(f"join: suffix must be a non-empty str, got {suffix!r}")
    return t.JoinColumns(*names, checked_how(options.get("how", "inner")), suffix)


def item_join(keys: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the key functions and the function of pairs of a join of items.

    Raises:
        TypeError: an argument is missing or unknown.
    """

    def arguments(left_key: Any, right_key: Any, fn: Any = None) -> tuple[Any, Any, Any]:
        return left_key, right_key, fn

    try:
        return arguments(*keys, **options)
    except TypeError as error:
        what = str(error).partition("arguments() ")[2]
        raise TypeError(f"join() {what}; it takes on=, or left_key and right_key of items, and fn") from None


def only_key(stage: str, keys: Sequence[Any], key: Any) -> Any:
    """Return the one function of an item that is given in place or by name. Raises TypeError when there are more."""
    if len(keys) + (key is not None) > 1:
        raise TypeError(f"{stage}: expected names of columns, or one function of an item, got {[*keys, key]}")
    return keys[0] if keys else key


def _shown(value: Any) -> str:
    return f"{type(value).__name__}: {value!r:.80}"
