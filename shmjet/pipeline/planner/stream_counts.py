"""Partition counts for streams that have none: the last of three steps; `agreement` is the check.

It sees names and numbers only. After Samza's `IntermediateStreamManager.calculatePartitions` (SAMZA-1889).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shmjet.core.checks import MOST_PARTITIONS
from shmjet.core.keys import DEFAULT_PARTITION_COUNT
from shmjet.data.errors import PlanError

MOST_INFERRED = 256
"""The largest count that is inferred from inputs and outputs; a known or configured count may be larger."""


def assign_counts(
    known: Mapping[str, int | None],
    sets: Mapping[str, Collection[str]],
    configured: int | None = None,
    inputs: Iterable[int | None] = (),
    outputs: Iterable[int | None] = (),
    default: int = DEFAULT_PARTITION_COUNT,
) -> dict[str, int]:
    """Return the partition count of every stream.

    A stream of unknown count takes that of a set it is in, and hands it on to the other sets that it is in, until
    nothing changes. What is left takes the configured count, else the largest among inputs and outputs up to 256, else
    the default. Sets may still disagree; that is not looked at here.

    Args:
        known: stream -> count, None where it is not known.
        sets: join -> the streams that meet there.
        configured: `JobConfig.intermediate_partitions`.
        inputs, outputs: counts of what the pipeline reads and writes, as far as they are known.
        default: for when none of these is known.

    Raises:
        PlanError: a count is not an integer from 1 to 65535, or a set names a stream that is not in `known`.

    Example:
        >>> assign_counts({"a": 8, "b": None, "c": None, "d": None}, {"j": ["a", "b"], "k": ["b", "c"]}, configured=3)
        {'a': 8, 'b': 8, 'c': 8, 'd': 3}
    """
    counts = {stream: _checked(f"stream {stream!r}", count) for stream, count in known.items() if count is not None}
    for join, streams in sets.items():
        for stream in streams:
            if stream not in known:
                raise PlanError(f"join {join!r}: stream {stream!r} is unknown; streams: {', '.join(map(repr, known))}")
    _propagate(counts, sets)
    at_the_ends = [count for count in (*inputs, *outputs) if count is not None]
    if configured is not None:
        rest = _checked("intermediate_partitions", configured)
    elif at_the_ends:
        rest = min(max(at_the_ends), MOST_INFERRED)
    else:
        rest = default
    return {stream: counts.get(stream, rest) for stream in known}


def _propagate(counts: dict[str, int], sets: Mapping[str, Collection[str]]) -> None:
    """Give the unknown members of each set the count of a known one, and look again at the sets they are in."""
    sets_of: dict[str, list[str]] = {}
    for join, streams in sets.items():
        for stream in streams:
            sets_of.setdefault(stream, []).append(join)
    waiting, processed = list(sets), set[str]()
    while waiting:
        join = waiting.pop(0)
        count = next((counts[stream] for stream in sets[join] if stream in counts), None)
        if join in processed or count is None:
            continue  # a set without a known count comes back when one of its members gets one
        processed.add(join)
        for stream in sets[join]:
            if stream not in counts:
                counts[stream] = count
                waiting += [other for other in sets_of[stream] if other not in processed]


def _checked(what: str, count: int) -> int:
    if not isinstance(count, int) or isinstance(count, bool):
        raise PlanError(f"{what}: a partition count must be an integer, got {count!r}")
    if not 1 <= count <= MOST_PARTITIONS:
        raise PlanError(f"{what}: a partition count must be from 1 to {MOST_PARTITIONS}, got {count}")
    return count
