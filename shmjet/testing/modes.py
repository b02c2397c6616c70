"""The ways in which `verify_processor` runs a processor: how inboxes are filled, outboxes refuse, and state is lost.

A way is a row of `MODES`, so more kinds are more rows. The five without regard to the outbox are those of Jet's
`TestSupport`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """One way of running a processor.

    Args:
        name: for messages.
        batch_size: items per inbox; None for all that there are up to the next watermark.
        full_at: 1 or 0 for an outbox of one slot that is full at every odd or every even call, None for a roomy one.
        restore_every: None: no snapshots. Otherwise there is a snapshot after each batch, and a fresh processor takes
            over after each one (1), after every second one (2) or never (0).

    Example:
        >>> Mode("one item at a time", batch_size=1, full_at=None).restore_every is None
        True
    """

    name: str
    batch_size: int | None
    full_at: int | None
    restore_every: int | None = None

    @property
    def takes_snapshots(self) -> bool:
        """Whether there are snapshots at all."""
        return self.restore_every is not None


_WAYS: tuple[tuple[str, int | None, int | None], ...] = (
    ("one item at a time", 1, None),
    ("all items at once", None, None),
    ("snapshot and restore after every item", 1, 1),
    ("snapshot and restore after every second item", 1, 2),
    ("snapshots without restore", 1, 0),
)
_OUTBOXES: tuple[tuple[str, int | None], ...] = (
    ("", None),
    (", outbox of one slot, full at every odd call", 1),
    (", outbox of one slot, full at every even call", 0),
)

MODES = tuple(
    Mode(way + outbox, batch_size, full_at, restore_every)
    for outbox, full_at in _OUTBOXES
    for way, batch_size, restore_every in _WAYS
)
"""What `verify_processor` runs through. With the outbox of one slot a snapshot takes one entry at every other call."""
