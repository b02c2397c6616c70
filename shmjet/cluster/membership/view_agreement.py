"""The agreement on a view: one member proposes it, all its members accept, and then it is installed.

A part of `membership`: the promises that a member has given, and the proposal that it has made itself. A member that
has accepted an epoch accepts nothing older. Knows nothing of why a view is proposed. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shmjet.cluster.membership.roster import Roster
from shmjet.cluster.membership.views import Accept, Fenced, JoinRequest, Peer, Propose, Reject, View
from shmjet.cluster.partitions.table import PartitionTable, Version


class Agreement:
    """What one member has promised, and what it waits for.

    `highest` is the newest epoch that it has heard of; it outlives `forget`, so that epochs grow.
    """

    def __init__(self) -> None:
        self.highest = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, under another identity."""
        self.since = 0
        """The first epoch that this identity has promised to be in, 0 for none: others may have it in their view."""
        self._promised: tuple[int, str] = (0, "")
        self._proposal: View | None = None
        self._accepted: set[str] = set()

    @property
    def promised(self) -> int:
        """The newest epoch that it has accepted, by itself or of another member; 0 for none."""
        return self._promised[0]

    def saw(self, epoch: int) -> None:
        """Note that there is such an epoch."""
        self.highest = max(self.highest, epoch)

    def entered(self, view: View, me: str) -> None:
        """Take that a view with this member in it is in force; what was proposed was to follow another one."""
        self.saw(view.epoch)
        self.since = self.since or view.since_of(me)
        self._proposal = None

    # -- proposing ----------------------------------------------------------------------------------------------

    def proposes(self, members: Sequence[Peer], since: Sequence[int]) -> bool:
        """Say whether the proposal that is under way is for these members, in this order, since these epochs."""
        proposal = self._proposal
        return proposal is not None and proposal.members == tuple(members) and proposal.since == tuple(since)

    def propose(self, view: View, me: str) -> None:
        """Propose a view, and accept it."""
        self.highest = view.epoch
        self._promised = (view.epoch, me)
        self._proposal = view
        self._accepted = {me}

    def withdraw(self) -> None:
        """Propose nothing any more."""
        self._proposal = None

    def unanswered(self, me: str, table: Version) -> Iterator[tuple[Peer, Propose]]:
        """Yield each member to ask, or to ask once more, with the question and the newest table that is known here."""
        if self._proposal is not None:
            for peer in self._proposal.members:
                if peer.uuid not in self._accepted:
                    yield peer, Propose(me, self._proposal, table)

    def accepted(self, message: Accept) -> bool:
        """Take a yes; returns whether it is to the proposal that is under way."""
        if self._proposal is None or message.epoch != self._proposal.epoch:
            return False
        self._accepted.add(message.sender)
        return True

    def rejected(self, message: Reject) -> bool:
        """Take a no; returns whether the proposal was overtaken by another one, and is withdrawn."""
        self.saw(message.epoch)
        if self._proposal is None or message.epoch < self._proposal.epoch:
            return False
        self._proposal = None
        return True

    def take_agreed(self) -> View | None:
        """Return the proposed view, once, when all have accepted it."""
        view = self._proposal
        if view is None or not self._accepted.issuperset(view.uuids):
            return None
        self._proposal = None
        return view

    # -- answering ----------------------------------------------------------------------------------------------

    def answers(
        self,
        message: Propose,
        request: JoinRequest,
        roster: Roster,
        tables: tuple[Version, PartitionTable | None],
        now: float,
    ) -> Iterator[tuple[str, Accept | Reject | Fenced | JoinRequest]]:
        """Yield what to say about a proposal of a view with this member in it, and to which addresses.

        An `Accept` is a promise to accept nothing older.

        Args:
            message: of a member that is in both views, where there is one.
            request: how this member would ask to join now.
            roster: the view that is in force.
            tables: what an `Accept` says of the tables of partitions.
            now: seconds.
        """
        me, proposed, view = request.peer.uuid, message.view, roster.view
        proposer = proposed.find(message.sender)
        if proposer is None:
            return
        if proposed == view:
            yield proposer.address, Accept(me, proposed.epoch, *tables)
        elif view is not None and message.sender != roster.leader(now).uuid:
            return  # we hear an older member: either the sender will change its mind, or our view changes
        elif self._is_overtaken(message, 0 if view is None else view.epoch):
            yield proposer.address, Reject(me, self.highest)
        elif view is not None and (back := proposed.lost_by(view)):
            for peer in back:  # the proposer has missed the view that lost them; they join again under a new identity
                yield peer.address, Fenced(me, peer.uuid, view.epoch)
        elif self.since and proposed.since_of(me) != self.since:
            yield proposer.address, request  # it does not know since when others may have us in their views
        else:
            self.since = proposed.since_of(me)
            self._promised = (proposed.epoch, message.sender)
            self.saw(proposed.epoch)
            self._proposal = None
            yield proposer.address, Accept(me, proposed.epoch, *tables)

    def _is_overtaken(self, message: Propose, present: int) -> bool:
        epoch = message.view.epoch
        is_new = epoch > self.highest or (epoch, message.sender) == self._promised
        return epoch <= present or not is_new
