"""Checks of the arguments of stages; each error names the stage, the argument that was given and what is expected.

Must not know the graph. A wrong argument is a `TypeError` at the user's own line, not when the job runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.column_key import ColumnKey, checked_names
from shmjet.core.event_time import TimestampFn
from shmjet.core.expressions.expression import Expression
from shmjet.core.key_functions import KeyFn
from shmjet.data.errors import PlanError
from shmjet.processors.general.services import ServiceFactory


def checked_fn(stage: str, what: str, fn: Any, *, is_async: bool = False) -> Callable[..., Any]:
    """Return a user's function.

    Args:
        stage: the stage's name, for the message.
        what: what the function is to take and give, for the message.
        fn: the function.
        is_async: it has to be a coroutine function; else it must not be one.

    Raises:
        TypeError: it cannot be called, or is a coroutine function where none is expected, or the other way round.

    Example:
        >>> checked_fn("map", "a function of one item", 5)
        Traceback (most recent call last):
        ...
        TypeError: map: expected a function of one item, got int: 5
    """
    if not callable(fn):
        raise TypeError(f"{stage}: expected {what}, got {_shown(fn)}")
    found = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    if found and not is_async:
        raise TypeError(
            f"{stage}: expected {what}, got the coroutine function {_name_of(fn)}; "
            "map_using_service_async() and its kin call such functions"
        )
    if is_async and not found and (inspect.isfunction(fn) or inspect.ismethod(fn)):
        raise TypeError(f"{stage}: expected {what}, made with `async def`; {_name_of(fn)} is a plain function")
    checked: Callable[..., Any] = fn
    return checked


def checked_key(stage: str, key_fn: Any) -> KeyFn:
    """Return a key function; None is the item itself, and a name stands for the value that a row has under it.

    Raises:
        TypeError: it is neither None, nor a name or several, nor callable. BatchError: a name is empty or there twice.

    Example:
        >>> checked_key("grouping_key", "user"), checked_key("grouping_key", ["user", "day"])
        (column('user'), columns('user', 'day'))
    """
    if key_fn is None:
        return None
    if isinstance(key_fn, str) or (isinstance(key_fn, list | tuple) and all(isinstance(n, str) for n in key_fn)):
        return ColumnKey(checked_names(stage, key_fn))
    what = "a function that gives the key of an item, the name of a column, or None for the item itself"
    return checked_fn(stage, what, key_fn)


def checked_timestamps(stage: str, fn: Any) -> TimestampFn:
    """Return a function of timestamps, or the one column that has them.

    Raises:
        TypeError: it is neither, or an expression of columns. PlanError: it names several columns.
    """
    if isinstance(fn, ColumnKey) and len(fn.names) != 1:
        raise PlanError(f"{stage}: timestamps are in one column, got {fn!r}")
    if isinstance(fn, Expression) and not isinstance(fn, ColumnKey):
        raise TypeError(
            f"{stage}: timestamps are in a column, got the expression {fn!r}; make a column of it with "
            "with_columns(at=...), then add_timestamps(column('at'))"
        )
    return checked_fn(stage, "a function that gives the timestamp of an item, or column(name)", fn)


def checked_operation(stage: str, op: Any, inputs: int) -> AggregateOperation[Any, Any, Any]:
    """Return an aggregate operation that takes so many inputs.

    Raises:
        TypeError: it is something else, or takes another number of inputs.
    """
    if not isinstance(op, AggregateOperation):
        raise TypeError(
            f"{stage}: expected an AggregateOperation, such as shmjet.aggregate_ops.counting(), got {_shown(op)}"
        )
    takes = inputs_of(op)
    if takes != inputs:
        raise TypeError(
            f"{stage}: {inputs} input{'s are' if inputs > 1 else ' is'} aggregated, but the operation takes {takes}; "
            "see aggregate_ops.aggregate_operation2, aggregate_operation3 and all_of"
        )
    return op


def inputs_of(op: AggregateOperation[Any, Any, Any]) -> int:
    """Return the number of inputs that an operation aggregates."""
    return op.inputs


def checked_service(stage: str, factory: Any) -> ServiceFactory[Any]:
    """Return a service factory; a function that makes a service is made one.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(factory, ServiceFactory) and not callable(factory):
        raise TypeError(f"{stage}: expected a ServiceFactory or a function that makes a service, got {_shown(factory)}")
    return ServiceFactory.of(factory)


def checked_count(stage: str, name: str, value: Any) -> int:
    """Return a number of at least one.

    Raises:
        TypeError: it is not an int. ValueError: it is below 1.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{stage}: {name} must be an int, got {_shown(value)}")
    if value < 1:
        raise ValueError(f"{stage}: {name} must be at least 1, got {value}")
    return value


def _shown(value: Any) -> str:
    return f"{type(value).__name__}: {value!r:.80}"


def _name_of(fn: Any) -> str:
    return f"{getattr(fn, '__qualname__', type(fn).__name__)}()"
