"""Keys of saved state: by group, or of a processor that has a state of its own.

State by group is saved under the group's key, so it comes back to the processor that gets the group's items. Must not
know: what the state is.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any

from shmjet._native import unify_nans
from shmjet.core.context import ProcessorContext
from shmjet.core.key_functions import NAN
from shmjet.core.keys import partition_id
from shmjet.core.state_placement import placement_in
from shmjet.data.errors import ProcessorError

_MOST_TRIED = 1 << 16
_ATOMS = frozenset((int, float, str, bytes, type(None)))
_COMPOUND = frozenset((dict, list, tuple))
_MOST_PARTS = 16
"""A longer list or tuple is not looked through: it is of items and not of accumulators."""


def own_key(context: ProcessorContext) -> int:
    """Return a key for the state of one processor that belongs to no group.

    While the vertex has as many processors, the entry comes back to the same one; where all edges lead to one
    processor, to that one. With another number of processors it comes to any one of them.

    Example:
        >>> context = ProcessorContext(global_index=2, total_parallelism=3)
        >>> partition_id(own_key(context), context.partition_count) % 3
        2
    """
    index, total = context.global_index, context.total_parallelism
    placement = placement_in(context)
    if total == 1 or placement.is_to_one:
        return 0
    partition_of = placement.partitioner or partition_id
    try:
        for key in range(_MOST_TRIED):
            if partition_of(key, placement.count) % total == index:
                return key
    except Exception:
        pass  # the partitioner is for other keys; that it leads somewhere is enough
    return index


def with_one_nan(entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return entries whose keys, and dicts in whose values, have the one NaN of this process, as keys of items do."""
    keys = [key for key, _ in entries]
    values = [value if type(value) in _ATOMS else with_own_nan(value) for _, value in entries]
    unified = unify_nans(keys, NAN)
    if unified is keys and all(value is entry[1] for value, entry in zip(values, entries, strict=True)):
        return entries
    return list(zip(unified, values, strict=True))


def with_own_nan(value: Any) -> Any:
    """Return a saved value in whose dicts NaN is the one of this process, by which what comes is found there.

    Such dicts are accumulators (`grouping_by`), alone, in one another, or among the few parts of another accumulator.

    Example:
        >>> list(with_own_nan({float("nan"): 1, 2: 3}))[0] is NAN
        True
    """
    kind = type(value)
    if kind is dict:
        keys, parts = list(value), list(value.values())
        unified = unify_nans(keys, NAN)
        own = list(map(with_own_nan, parts)) if parts and type(parts[0]) in _COMPOUND else parts
        if unified is keys and all(map(is_, own, parts)):
            return value
        made = dict(zip(unified, own, strict=True))
        return made if len(made) == len(value) else value  # with several NaNs it is a dict of the user's
    if kind not in _COMPOUND or len(value) > _MOST_PARTS:
        return value
    for part in value:
        if type(part) in _COMPOUND:
            break
    else:
        return value
    own = list(map(with_own_nan, value))
    if all(map(is_, own, value)):
        return value
    return own if kind is list else tuple(own)


def put_back(states: dict[Any, Any], entries: list[tuple[Any, Any]], context: ProcessorContext, advice: str) -> None:
    """Put entries into a dict of states that cannot be combined.

    Args:
        states: by key.
        entries: each with a key of its own.
        context: of the processor.
        advice: what to do about two states of one key.

    Raises:
        ProcessorError: there are two states for one key.
    """
    before = len(states)
    states.update(with_one_nan(entries))
    if len(states) < before + len(entries):
        raise ProcessorError(
            f"vertex {context.vertex_name!r}: the snapshot has several states for one key, which cannot be combined; "
            f"{advice}"
        )


UNKEYED_ADVICE = "keep one processor, or give a key, so that states belong to keys"
KEYED_ADVICE = "partition the edge by the key that the states belong to"


def state_entries(states: dict[Any, Any], keyed: bool, context: ProcessorContext) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a dict of states; where there are no keys it has one at most, that of the processor."""
    return states.items() if keyed else [(own_key(context), state) for state in states.values()]


def restore_states(
    states: dict[Any, Any], entries: list[tuple[Any, Any]], keyed: bool, context: ProcessorContext
) -> None:
    """Put back what `state_entries` gave.

    Raises:
        ProcessorError: there are two states for one key, or for a processor.
    """
    if keyed:
        put_back(states, entries, context, KEYED_ADVICE)
    else:
        put_back(states, [(None, state) for _, state in entries], context, UNKEYED_ADVICE)
