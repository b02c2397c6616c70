"""Join clauses, and the arguments of stages that take other stages.

Must not know how anything is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shmjet import aggregate_ops
from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.key_functions import KeyFn
from shmjet.pipeline.checks import checked_fn, checked_key, checked_operation
from shmjet.pipeline.handles import Stage
from shmjet.pipeline.transforms import JoinClause

On = JoinClause | tuple[KeyFn, KeyFn]
"""How two sides are joined: what `on_keys` returns, or the pair of key functions itself."""


def on_keys(left_key: KeyFn, right_key: KeyFn) -> JoinClause:
    """Return how a side of a hash join is joined: where two keys are equal.

    Args:
        left_key: key of an item of the stream; None: the item itself.
        right_key: key of an item of the joined side.

    Example:
        >>> on_keys(lambda trade: trade[0], lambda product: product[0]).projecting(lambda product: product[1])
        ... # doctest: +ELLIPSIS
        JoinClause(...)
    """
    return JoinClause(checked_key("on_keys", left_key), checked_key("on_keys", right_key))


def _first(entry: Any) -> Any:
    return entry[0]


def _second(entry: Any) -> Any:
    return entry[1]


def join_map_entries(left_key: KeyFn) -> JoinClause:
    """Return how a side of `(key, value)` items is joined: by their keys, and what is joined is the value.

    Args:
        left_key: key of an item of the stream; None: the item itself.

    Example:
        >>> join_map_entries(lambda trade: trade[0])            # doctest: +ELLIPSIS
        JoinClause(...)
    """
    return JoinClause(checked_key("join_map_entries", left_key), _first, _second)


def co_aggregation(
    name: str, arguments: Sequence[Any], inputs: int, kind: type[Any]
) -> tuple[list[Any], AggregateOperation[Any, Any, Any]]:
    """Return the other stages, and the operation, of `(stage1, .., op)` or `(op0, stage1, op1, ..)`.

    Raises:
        TypeError: the arguments are neither.
    """
    if len(arguments) == inputs and all(isinstance(a, kind) for a in arguments[:-1]):
        return list(arguments[:-1]), checked_operation(name, arguments[-1], inputs)
    stages = arguments[1::2]
    if len(arguments) == 2 * inputs - 1 and all(isinstance(stage, kind) for stage in stages):
        ops = [checked_operation(name, op, 1) for op in arguments[::2]]
        return list(stages), co_operation(ops)
    raise TypeError(
        f"{name}: expected {inputs - 1} stage{'s' if inputs > 2 else ''} ({kind.__name__}) and an operation of "
        f"{inputs} inputs, or an operation, then a stage and its operation in turn; got "
        f"({', '.join(type(a).__name__ for a in arguments)})"
    )


def co_operation(ops: Sequence[AggregateOperation[Any, Any, Any]]) -> AggregateOperation[Any, Any, Any]:
    """Return the operation of several inputs that gives the tuple of the results of `ops`, each for its input."""
    if len(ops) == 2:
        return aggregate_ops.aggregate_operation2(ops[0], ops[1])
    return aggregate_ops.aggregate_operation3(ops[0], ops[1], ops[2])


def parsed_sides(
    name: str, arguments: Sequence[Any], fn: Any
) -> tuple[list[Any], list[JoinClause], Callable[..., Any] | None]:
    """Take the arguments of a hash join apart: stage, clause (or two key functions), ..., perhaps the function.

    Raises:
        TypeError: they are something else.
    """
    sides: list[Any] = []
    clauses: list[JoinClause] = []
    at = 0
    while at < len(arguments) and isinstance(arguments[at], Stage):
        sides.append(arguments[at])
        rest = arguments[at + 1 :]
        if rest and isinstance(rest[0], JoinClause):
            clauses.append(rest[0])
            at += 2
        elif rest and isinstance(rest[0], tuple) and len(rest[0]) == 2:
            clauses.append(on_keys(*rest[0]))
            at += 2
        elif len(rest) >= 2 and all(key is None or callable(key) for key in rest[:2]):
            clauses.append(on_keys(*rest[:2]))
            at += 3
        else:
            raise TypeError(
                f"{name}: expected how {arguments[at]!r} is joined, on_keys(left_key, right_key), "
                f"got {rest[0] if rest else 'nothing'!r}"
            )
    left = list(arguments[at:])
    if len(left) == 1 and fn is None:
        fn = left.pop()
    if left or not sides:
        got = left[0] if left else "nothing"
        raise TypeError(f"{name}: expected a stage to join with and on_keys(left_key, right_key), got {got!r}")
    if fn is not None:
        checked_fn(name, "a function of an item and what matches it", fn)
    return sides, clauses, fn
