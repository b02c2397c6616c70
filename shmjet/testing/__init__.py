"""Tests of processors without an engine: `verify_processor`, and an inbox, outbox, context and grid for use by hand.

`verify_processor` is Jet's best idea for testing (its TestSupport): the same input is run several times, in batches of
one and all at once, with snapshots and restores after every item, after every second item, and with snapshots alone,
into a roomy outbox and into one with a single slot that is full at every other call. Each run must give the same
output, make progress in every call and forget no refused item. Nothing here knows the engine.
"""

from __future__ import annotations

from shmjet.data.errors import AssertionCompletedError
from shmjet.testing.doubles import TestContext, TestGrid, TestInbox, TestOutbox
from shmjet.testing.modes import MODES, Mode
from shmjet.testing.verification import ProcessorCheck, verify_processor

__all__ = [
    "MODES",
    "AssertionCompletedError",
    "Mode",
    "ProcessorCheck",
    "TestContext",
    "TestGrid",
    "TestInbox",
    "TestOutbox",
    "verify_processor",
]
