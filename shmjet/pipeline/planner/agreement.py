"""The check that streams which are joined have equally many partitions.

It sees names and numbers only. After `ExecutionPlanner.validatePartitions` of Samza (SAMZA-1889).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shmjet.data.errors import PlanError


def check(counts: Mapping[str, int], sets: Mapping[str, Collection[str]]) -> None:
    """Return when all counts in every set are equal.

    Args:
        counts: stream -> partition count.
        sets: join -> the streams that meet there.

    Raises:
        PlanError: they are not; the text names the join, two streams and their counts.

    Example:
        >>> check({"a": 8, "b": 16}, {"join": ["a", "b"]})      # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        shmjet.data.errors.PlanError: join 'join': stream 'a' has 8 partitions, but stream 'b' has 16; ...
    """
    for join, streams in sets.items():
        first, *others = streams
        for other in others:
            if counts[other] != counts[first]:
                raise PlanError(
                    f"join {join!r}: stream {first!r} has {_partitions(counts[first])}, but stream {other!r} has "
                    f"{counts[other]}; streams that are joined must have equally many: make a new stream of one of "
                    "them with .partition_by(key_fn), which takes the count of the other"
                )


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
