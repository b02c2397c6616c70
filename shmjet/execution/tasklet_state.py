"""Where a tasklet is in its life; apart from the tasklet, so that code that only reads it needs nothing else."""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """A tasklet's state; names are Jet's. It stands in the processor's counters."""

    PROCESS_WATERMARK = 0
    NULLARY_PROCESS = 1
    PROCESS_INBOX = 2
    COMPLETE_EDGE = 3
    COMPLETE = 4
    EMIT_BARRIER = 5
    EMIT_DONE_ITEM = 6
    END = 7
    RESTORE_SNAPSHOT = 8
    FINISH_RESTORE = 9
    SAVE_SNAPSHOT = 10
    SNAPSHOT_COMMIT_PREPARE = 11
    SNAPSHOT_COMMIT_FINISH = 12
    WAIT_FOR_SNAPSHOT = 13
    SAVE_FINAL = 14
