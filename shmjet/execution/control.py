"""The control segment: shared memory of a member for as long as it lives, one block per worker, then the member's own
and that of its link.

A block holds the worker's doorbell and the words that anyone may read without asking: heartbeat, time spent
working, number of tasklets. Only the worker writes its words, except the doorbell and the thief's mark.
`docs/formats/control.md` has the offsets.
"""

from __future__ import annotations

from shmjet._native import DOORBELL_SIZE, Doorbell

WORDS = 16
BLOCK_SIZE = -(-(DOORBELL_SIZE + WORDS * 8) // 128) * 128

PID = 0
HEARTBEAT_NS = 1
BUSY_NS = 2
IDLE_NS = 3
TASKLETS = 4
ROUNDS = 5
SLEEPS = 6
CURRENT_EXECUTION = 7
INTERRUPT = 10
"""The execution that the member wants out of this worker: what the signal's handler compares with the current one."""
STOLEN = 9
"""Tasklets that others have taken from this worker."""
SLAB_BYTES = 11
"""Bytes of batches that this worker has put into slabs for others, of executions that have ended."""
CHANGES = 12
"""In the member's block: how often an execution has got its arena or given it back, so that who watches looks again."""
THIEF = 8
"""1 + the index of a worker that asks for a tasklet, 0 when none does."""


def control_size(workers: int) -> int:
    """Return the bytes that a control segment for this many workers takes."""
    return -(-(workers + 2) * BLOCK_SIZE // 4096) * 4096


def link_offset(workers: int) -> int:
    """Return where the block of the link process lies in it, behind those of the workers and the member's own."""
    return (workers + 1) * BLOCK_SIZE


def control_words(memory: memoryview, start: int) -> memoryview:
    """Return the words of the block that starts at this offset."""
    return memory[start + DOORBELL_SIZE : start + DOORBELL_SIZE + WORDS * 8].cast("q")


class WorkerControl:
    """One worker's block.

    Args:
        memory: the writable control segment (or, for a carrier, its execution's arena).
        start: offset of the block in bytes; `index * BLOCK_SIZE` for a worker.
    """

    def __init__(self, memory: memoryview, start: int) -> None:
        self.doorbell = Doorbell(memory, start)
        self.words = control_words(memory, start)

    def request_interrupt(self, execution_id: int) -> bool:
        """Note which execution is to be interrupted; False when the process is not running its code now."""
        self.words[INTERRUPT] = execution_id
        return self.words[CURRENT_EXECUTION] == execution_id

    def reset(self) -> None:
        """Zero all words; the member calls it before a worker starts in this place."""
        for i in range(WORDS):
            self.words[i] = 0

    def release(self) -> None:
        """Let go of the segment, so that it can be unmapped."""
        self.words.release()
