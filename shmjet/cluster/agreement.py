"""How a view comes into force: one member proposes it, all who would be in it accept, and then it is installed.

A part of `membership`: the promises that a member has given, and the proposal that it has made itself. Whoever has
accepted an epoch accepts nothing older. Knows nothing of who may propose, or why. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shmjet.cluster.views import Accept, Peer, Propose, Reject, View


class Agreement:
    """What one member has promised, and what it waits for.

    `highest` is the newest epoch that it has heard of; it outlives `forget`, so that epochs grow.
    """

    def __init__(self) -> None:
        self.highest = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, as somebody else."""
        self._promised: tuple[int, str] = (0, "")
        self._proposal: View | None = None
        self._accepted: set[str] = set()

    @property
    def promised(self) -> int:
        """The epoch of the newest proposal that this identity has accepted or made; 0 for none."""
        return self._promised[0]

    def saw(self, epoch: int) -> None:
        """Note that there is such an epoch."""
        self.highest = max(self.highest, epoch)

    # -- proposing ----------------------------------------------------------------------------------------------

    def proposes(self, uuids: Sequence[str]) -> bool:
        """Say whether the proposal that is under way is for these members, the oldest first."""
        return self._proposal is not None and self._proposal.uuids == tuple(uuids)

    def propose(self, view: View, me: str) -> None:
        """Propose a view, and accept it."""
        self.highest = view.epoch
        self._promised = (view.epoch, me)
        self._proposal = view
        self._accepted = {me}

    def withdraw(self) -> None:
        """Propose nothing any more."""
        self._proposal = None

    def unanswered(self, me: str) -> Iterator[tuple[Peer, Propose]]:
        """Yield whom to ask, or to ask once more, and what."""
        if self._proposal is not None:
            for peer in self._proposal.members:
                if peer.uuid not in self._accepted:
                    yield peer, Propose(me, self._proposal)

    def accepted(self, message: Accept) -> None:
        """Take a yes."""
        if self._proposal is not None and message.epoch == self._proposal.epoch:
            self._accepted.add(message.sender)

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

    def overtaken_by(self, message: Propose, present: int) -> int | None:
        """Return the epoch by which a proposal is overtaken, None when it may be accepted.

        Args:
            message: the proposal; one that was accepted before may be accepted again.
            present: the epoch of the view that is in force, 0 where there is none.
        """
        epoch = message.view.epoch
        is_new = epoch > self.highest or (epoch, message.sender) == self._promised
        return None if is_new and epoch > present else self.highest

    def accept(self, message: Propose) -> None:
        """Promise to accept nothing older."""
        self._promised = (message.view.epoch, message.sender)
        self.saw(message.view.epoch)
        self._proposal = None
