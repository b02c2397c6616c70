"""The records of runs on the way to other members: a coordinator keeps theirs up to date, a new one collects them.

A connection keeps its order, and what is under way is lost with it. So each member gets all records when it is
connected, and from then on each change. No clock and no I/O in here, but the futures of who waits for confirmations.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable

from shmjet.cluster.jobs.run_copies import RunCopies, in_messages
from shmjet.cluster.membership.run_messages import (
    AskRuns,
    KeepEnded,
    KeepRun,
    KeepRunState,
    RunOrigin,
    RunRecordCopy,
    RunsAre,
    RunState,
    RunStateKept,
)

Send = Callable[[str, object], None]
"""Sends a message to a member; it is lost when there is no connection."""


class RunReplication:
    """What a coordinator sends to the other members.

    Args:
        copies: this member's own records.
        send: to other members.
        full: returns an origin with the code of its job.
        on_new: called with a member that has just got all records.
    """

    def __init__(
        self,
        copies: RunCopies,
        send: Send,
        full: Callable[[RunOrigin], RunOrigin] = lambda origin: origin,
        on_new: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._copies = copies
        self._send = send
        self._full = full
        self._on_new = on_new
        self._reached: set[str] = set()
        """The members that have all records, or get them over the present connection."""
        self._numbers = itertools.count(1)
        self._unconfirmed: dict[int, tuple[set[str], asyncio.Future[None]]] = {}

    def put(self, run: int, state: RunState, origin: RunOrigin | None = None) -> None:
        """Tell all members a state, and with the first one the origin, unless files go before it (`files_sent`)."""
        self._copies.keep(run, state, origin)
        if self._reached and (origin is None or not origin.job.attachments):
            message = KeepRunState(run, state) if origin is None else KeepRun(RunRecordCopy(self._full(origin), state))
            for member in self._reached:
                self._send(member, message)

    async def put_confirmed(self, run: int, state: RunState) -> None:
        """Tell all members a state, and wait until each has it or is lost."""
        self._copies.keep(run, state)
        if not self._reached:
            return
        number = next(self._numbers)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconfirmed[number] = set(self._reached), future
        for member in self._reached:
            self._send(member, KeepRunState(run, state, number))
        try:
            await future
        finally:
            self._unconfirmed.pop(number, None)

    def confirmed(self, member: str, message: RunStateKept) -> None:
        """Take that a member has a state."""
        if message.number in self._unconfirmed:
            self._needs_no_answer(message.number, member)

    def follow(self, connected: Collection[str]) -> None:
        """Bring members up to date that have just been connected; forget members that are not connected any more.

        Args:
            connected: the other members of the view that are connected.
        """
        for member in self._reached - set(connected):
            self.member_lost(member)
        for member in connected:
            if member not in self._reached:
                self._reached.add(member)
                for copy in self._copies.live():
                    if not copy.origin.job.attachments:
                        self._send(member, KeepRun(RunRecordCopy(self._full(copy.origin), copy.state)))
                for piece in in_messages(self._copies.ended()) or ((),):
                    self._send(member, KeepEnded(list(piece)))
                self._on_new(member)

    def files_sent(self, run: int, members: Iterable[str]) -> None:
        """Send members the record of a run to whose job files are attached: who has the record has the files."""
        copy = self._copies.copy_of(run)
        for member in members if copy is not None and copy.origin.job.attachments else ():
            if member in self._reached:
                assert copy is not None
                self._send(member, KeepRun(RunRecordCopy(self._full(copy.origin), copy.state)))

    def member_lost(self, member: str) -> None:
        """Take that a member, or the connection to it, is lost."""
        self._reached.discard(member)
        for number in list(self._unconfirmed):
            self._needs_no_answer(number, member)

    def _needs_no_answer(self, number: int, member: str) -> None:
        members, future = self._unconfirmed[number]
        members.discard(member)
        if not members and not future.done():
            future.set_result(None)


class RunCollection:
    """What a new coordinator asks of the other members before it goes on with runs.

    Args:
        copies: this member's own records, which become the newest of all.
        send: to other members.
        on_complete: called when all have answered.
    """

    def __init__(self, copies: RunCopies, send: Send, on_complete: Callable[[], None]) -> None:
        self._copies = copies
        self._send = send
        self._on_complete = on_complete
        self._epoch = 0
        self._asked: set[str] = set()
        self.is_active = False
        """Whether it waits for answers."""

    def begin(self, epoch: int, others: Iterable[str]) -> None:
        """Ask all other members of a view; a view that comes while others have not answered begins anew.

        Args:
            epoch: of the view.
            others: its other members.
        """
        self.is_active, self._epoch, self._asked = True, epoch, set(others)
        for member in self._asked:
            self.ask(member)
        self._check()

    def ask(self, member: str) -> None:
        """Ask a member (again), if it has not answered: it has just been connected."""
        if self.is_active and member in self._asked:
            self._send(member, AskRuns(self._epoch, self._copies.versions()))

    def take(self, member: str, message: RunsAre) -> None:
        """Take an answer."""
        for copy in message.live:
            self._copies.keep(copy.origin.run, copy.state, copy.origin)
        if message.epoch == self._epoch:
            self._asked.discard(member)
            self._check()

    def stop(self) -> None:
        """Wait for nothing: this member does not coordinate any more."""
        self.is_active = False

    def _check(self) -> None:
        if self.is_active and not self._asked:
            self.is_active = False
            self._on_complete()
