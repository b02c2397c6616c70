"""Two parts of one cluster that meet: the decision which of them goes on. A part of `membership`."""

from __future__ import annotations

import enum

from shmjet.cluster.membership.events import State
from shmjet.cluster.membership.views import Peer, Probe, View


class MergeDecision(enum.Enum):
    """What a member does about another part of its cluster."""

    NOTHING = enum.auto()
    JOIN = enum.auto()
    """Take a new identity, and join them."""
    REDIRECT = enum.auto()
    """Tell them who coordinates here: they should talk to each other."""
    DISBAND = enum.auto()
    """Have all members here join them."""
    ANSWER = enum.auto()
    """Tell them that this is the part that goes on."""


def resolve(probe: Probe, me: Peer, view: View, state: State) -> MergeDecision:
    """Return what to do about a probe of who is not in the view: the larger part, then that of the newer view, wins."""
    if view.find(probe.sender.uuid) is not None or state is State.LEAVING:
        return MergeDecision.NOTHING
    if state is State.ISOLATED:
        return (
            MergeDecision.JOIN if probe.size > 0 else MergeDecision.NOTHING
        )  # an isolated member can take no other in
    if view.coordinator.uuid != me.uuid:
        return MergeDecision.REDIRECT
    ours = (len(view.members), view.epoch, me.uuid)
    return MergeDecision.DISBAND if ours < (probe.size, probe.epoch, probe.sender.uuid) else MergeDecision.ANSWER
