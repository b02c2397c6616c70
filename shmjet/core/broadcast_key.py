"""Keys of saved state that belongs to no partition."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BroadcastKey:
    """A key for `offer_to_snapshot`: its entry comes back to every processor of the vertex.

    Args:
        key: of which state it is, picklable.

    Example:
        >>> BroadcastKey("offset").key
        'offset'
    """

    key: Hashable
