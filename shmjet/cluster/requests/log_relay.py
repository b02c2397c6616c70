"""Log records on their way through a member: from its workers, over the coordinator, to the client that runs the job.

Workers send them here when a client of another host runs the job (`shmjet.execution.logs`); a worker waits while this
member is slow, which it never is for long, as it waits for no client in turn: records beyond the rate that a member
may pass on are dropped and counted. Records are never decoded here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable

from shmjet.execution.logs import RELAYED

BURST_BYTES = 4 << 20
"""So much of one execution's records is passed on at once,"""
BYTES_PER_S = 1 << 20
"""and so much in each second after that, by each member."""
_MOST = 512 << 10
"""Bytes of a datagram."""
_PIECE = 128 << 10
"""A message has about so many bytes of records at most."""
_ROUND = 4096
"""Records that are taken before something else has its turn; more than fit in the socket."""


class Allowance:
    """How many bytes may still pass: a full bucket at first, which fills again with time. Pure arithmetic.

    Args:
        now: seconds, by any clock.
    """

    def __init__(self, now: float) -> None:
        self._left = float(BURST_BYTES)
        self._at = now

    def take(self, size: int, now: float) -> bool:
        """Say whether `size` bytes may pass now, and take them off if so."""
        self._left = min(BURST_BYTES, self._left + (now - self._at) * BYTES_PER_S)
        self._at = now
        if size > self._left:
            return False
        self._left -= size
        return True


class LogRelay:
    """Takes the records of this member's workers for clients of other hosts.

    Args:
        pass_on: called with an execution, records of it, and how many were left out before them.
        clock: gives seconds.
    """

    def __init__(
        self, pass_on: Callable[[int, list[bytes], int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pass_on = pass_on
        self._clock = clock
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.setblocking(False)
        self._room = memoryview(bytearray(_MOST))
        self._allowances: dict[int, Allowance] = {}
        self._dropped: dict[int, int] = {}

    @property
    def writer(self) -> int:
        """The descriptor that workers are given."""
        return self._writer.fileno()

    def open(self) -> None:
        """Begin; needs the running loop."""
        asyncio.get_running_loop().add_reader(self._reader.fileno(), self.drain)

    def drain(self) -> None:
        """Pass on all that has been sent so far."""
        pieces: dict[int, list[bytes]] = {}
        sizes: dict[int, int] = {}
        now = self._clock()
        for _ in range(_ROUND):
            try:
                size = self._reader.recv_into(self._room)
            except BlockingIOError:
                break
            if size < RELAYED.size:
                break
            (execution,) = RELAYED.unpack_from(self._room)
            record = bytes(self._room[RELAYED.size : size])
            if not self._allowances.setdefault(execution, Allowance(now)).take(len(record), now):
                self._dropped[execution] = self._dropped.get(execution, 0) + 1
                continue
            pieces.setdefault(execution, []).append(record)
            sizes[execution] = sizes.get(execution, 0) + len(record)
            if sizes[execution] >= _PIECE:
                self._send(execution, pieces.pop(execution))
                sizes[execution] = 0
        for execution, records in pieces.items():
            self._send(execution, records)

    def _send(self, execution: int, records: list[bytes]) -> None:
        self._pass_on(execution, records, self._dropped.pop(execution, 0))

    def ended(self, execution: int) -> None:
        """Forget an execution that has ended here; say how many of its records were dropped in the end."""
        self._allowances.pop(execution, None)
        if self._dropped.get(execution):
            self._send(execution, [])

    def close(self) -> None:
        """Close the socket; workers should have ended."""
        asyncio.get_running_loop().remove_reader(self._reader.fileno())
        self._reader.close()
        os.close(self._writer.detach())
