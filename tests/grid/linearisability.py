"""Is a recorded history of one key linearisable? Pure; after Wing and Gong, with Lowe's memory of states seen.

A history is what clients saw: each operation with the time at which it was begun and the time at which its answer came,
or never. It is linearisable if each operation can be put at one moment between the two, so that a dict that does them
in that order gives the same answers. An operation without an answer may have happened at any time after its begin, or
not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """What one client did with the key.

    `kind` is "get", "put", "add" (put_if_absent), "replace", "pop" or "increment" (by compute). `value` is what it
    brought, `answer` what it got. `end` is infinity when no answer came.
    """

    kind: str
    value: Any
    answer: Any
    begin: float
    end: float = math.inf


def applied(kind: str, value: Any, state: Any) -> tuple[Any, Any]:
    """Return the answer and the new state of the key; None stands for no entry."""
    match kind:
        case "get":
            return state, state
        case "put":
            return state, value
        case "add":
            return state, value if state is None else state
        case "replace":
            return state, None if state is None else value
        case "pop":
            return state, None
        case "increment":
            return (state or 0) + value, (state or 0) + value
    raise ValueError(kind)


def is_linearisable(history: Sequence[Operation], state: Any = None) -> bool:
    """Say whether a history of one key is linearisable, begun in this state."""
    operations = sorted(history, key=lambda operation: operation.begin)
    answered = sum(operation.end < math.inf for operation in operations)
    seen: set[tuple[int, Any]] = set()
    stack = [(0, 0, state)]
    while stack:
        done, count, now = stack.pop()
        if count == answered:
            return True
        if (done, now) in seen:
            continue
        seen.add((done, now))
        left = [index for index in range(len(operations)) if not done >> index & 1]
        first_end = min(operations[index].end for index in left)
        for index in left:
            operation = operations[index]
            if operation.begin > first_end:
                break
            answer, after = applied(operation.kind, operation.value, now)
            is_answered = operation.end < math.inf
            if not is_answered or answer == operation.answer:
                stack.append((done | 1 << index, count + is_answered, after))
    return False
