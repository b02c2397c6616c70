"""The search for a cluster: where to ask, who else searches, and when to give up and found one.

A part of `membership`. Of several that look, the one with the lowest address founds. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterable

from shmjet.cluster.membership.events import MembershipSettings

_FRESH = 5
"""Intervals of asking for which an answer counts."""
MOST_LEARNED = 64
"""Addresses that are kept in addition to the given ones and the view's: hosts come and go under new addresses."""


class ClusterSearch:
    """What is known of addresses at which there may be members.

    Args:
        own: this member's address, at which it does not look.
        seeds: where to begin.
        settings: how often to ask, and how long to wait.
    """

    def __init__(self, own: str, seeds: Iterable[str], settings: MembershipSettings) -> None:
        self._own = own
        self._settings = settings
        self._given = {address for address in seeds if address != own}
        self._learned: dict[str, None] = {}
        """The address that was heard of last stands last."""
        self.seeds = set(self._given)
        self.unreachable: set[str] = set()
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin anew; addresses are kept."""
        self._since = now
        self._next = now
        self._seekers: dict[str, float] = {}
        self._hopeful_until = 0.0
        self.unreachable.clear()

    def learn(self, addresses: Iterable[str]) -> bool:
        """Take further addresses; returns whether one of them is new."""
        told = {address for address in addresses if address != self._own}
        fresh = told - self.seeds
        for address in sorted(told - self._given):
            self._learned.pop(address, None)
            self._learned[address] = None
        for address in list(self._learned)[: max(0, len(self._learned) - max(MOST_LEARNED, len(told)))]:
            del self._learned[address]
            self.unreachable.discard(address)
        self.seeds = self._given | self._learned.keys()
        return bool(fresh)

    def ask_soon(self, now: float) -> None:
        """Ask again at once."""
        self._next = now

    def rename(self, seed: str, address: str) -> bool:
        """Note that the process at a seed uses another address; returns whether that is a new address."""
        if seed == address or seed not in self.seeds:
            return False
        self._learned.pop(seed, None)
        is_new = address != self._own and address not in self.seeds
        if seed in self._given:
            self._given.discard(seed)
            self._given |= {address} - {self._own}
        self.learn([address])
        return is_new

    def due(self, now: float) -> bool:
        """Say whether it is time to ask all seeds again."""
        if now < self._next:
            return False
        self._next = now + self._settings.join_interval
        return True

    def nothing_at(self, address: str) -> None:
        """Note that no process listens at an address."""
        if address in self.seeds:
            self.unreachable.add(address)

    def another_searches(self, address: str, now: float) -> None:
        """Note that another process looks for a cluster, too."""
        self._seekers[address] = now

    def is_hopeful(self, now: float) -> None:
        """Note that there is a cluster that may take us."""
        self._hopeful_until = now + _FRESH * self._settings.join_interval

    def may_found(self, now: float) -> bool:
        """Say whether to found a cluster: no cluster takes us, and no other process should found it instead."""
        fresh = {address for address, at in self._seekers.items() if now - at < _FRESH * self._settings.join_interval}
        if now < self._hopeful_until or any(address < self._own for address in fresh):
            return False
        return self.seeds <= self.unreachable | fresh or now - self._since >= self._settings.join_patience
