"""Where the engine brings the saved entries of a vertex after a restore, for processors that save many keys at once.

An entry comes to the processor that owns its key's partition, as the vertex's inbound edges deal items. A processor
that saves the rows of a table in pieces puts rows of one partition into a piece, and has to know how edges deal them.
Must not know lanes or plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmjet.core.context import ProcessorContext


@dataclass(frozen=True, slots=True)
class StatePlacement:
    """How the edges into a vertex deal what comes to its processors.

    Args:
        count: partitions of its first partitioned edge, or of the job where there is none.
        columns: by which that edge deals the rows of batches; None where it has another key, which is believed to be
            the key of the state.
        partitioner: that edge's own, `(key, count) -> partition`; None for the hash of the key.
        is_partitioned: there is such an edge. Without one entries are saved by place, under a `BroadcastKey`.
        is_to_one: all edges bring everything to one processor, whose context says that it `receives`.
        broadcast: ordinals of the edges that bring everything to every processor.
    """

    count: int
    columns: tuple[str, ...] | None = None
    partitioner: Callable[[Any, int], int] | None = None
    is_partitioned: bool = True
    is_to_one: bool = False
    broadcast: frozenset[int] = frozenset()


def placement_in(context: ProcessorContext) -> StatePlacement:
    """Return what the engine has handed in with a context; without an engine the keys of the state are partitioned."""
    found: Callable[[], StatePlacement] | None = context._find_placement
    return StatePlacement(context.partition_count) if found is None else found()


def hand_in_placement(context: ProcessorContext, find: Callable[[], StatePlacement]) -> None:
    """Have a context tell how edges deal what comes; found when one asks. The engine does, before other code."""
    object.__setattr__(context, "_find_placement", find)


def takes_place(context: ProcessorContext, index: int) -> bool:
    """Say whether a processor takes over what the one of a global index has saved by place.

    Places are dealt in turn to the processors that there are now, so that each has one owner.

    Example:
        >>> from shmjet.core.context import ProcessorContext
        >>> context = ProcessorContext(global_index=1, total_parallelism=2)
        >>> [takes_place(context, index) for index in range(4)]
        [False, True, False, True]
    """
    if placement_in(context).is_to_one:
        return context.receives
    return index % context.total_parallelism == context.global_index


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The key of saved rows of many partitions, all of which one processor owns.

    As long as every partition has the same owner, the entry comes back to that processor alone. Otherwise it comes to
    all of the vertex, and each takes the rows of some partitions.

    Args:
        number: among the entries of the processor.
        taken: in an entry that comes back, a byte for each partition, 1 where its rows are to be taken; None: all.
    """

    number: int
    taken: bytes | None = None


class OwnEntries(list[Any]):
    """Entries by partition that a processor gets back which has saved them itself.

    No row in them is a second time in any others of these, whatever the edges into the vertex bring where.
    """


class NullKey:
    """The key of saved state whose key is None, which `offer_to_snapshot` refuses as a key; of the same partition.

    Example:
        >>> from shmjet.core.keys import partition_id
        >>> partition_id(NullKey()) == partition_id(None)
        True
    """

    def __partition_key__(self) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullKey)

    def __hash__(self) -> int:
        return hash(NullKey)
