"""How the engine saves processors of the library, beyond what `Processor` tells users.

A processor says so by attributes with an underscore, so that a class of a user has none of them by chance.
"""

from __future__ import annotations

from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor
from shmjet.core.state_placement import OwnEntries


def saves_at_end(processor: Processor) -> bool:
    """Whether `save_to_snapshot` works after `complete` has returned True, too: the state of a source at its end."""
    return processor._saves_at_end


def captures(processor: Processor) -> bool:
    """Whether `capture` works now, in place of `save_to_snapshot` at the barrier."""
    return processor._captures


def capture(processor: Processor) -> bool:
    """Have a processor keep its state of this moment; `save_to_snapshot` saves that later, whatever comes in meanwhile.

    It may emit. Returns False to be called again before anything else.
    """
    return processor._capture()


def are_own(inbox: Inbox) -> bool:
    """Whether the processor that gets these saved entries back has saved them itself; see `OwnEntries`."""
    return isinstance(inbox._items, OwnEntries)
