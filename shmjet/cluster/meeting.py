"""Parts of one cluster that meet: which of them goes on, and what the other does. A part of `membership`."""

from __future__ import annotations

import enum

from shmjet.cluster.membership_events import State
from shmjet.cluster.views import Peer, Probe, View


class Turn(enum.Enum):
    """What a member does about another part of its cluster."""

    NOTHING = enum.auto()
    JOIN = enum.auto()
    """Become somebody new, and join them."""
    REDIRECT = enum.auto()
    """Tell them who coordinates here: they should talk to each other."""
    DISBAND = enum.auto()
    """Have all members here join them."""
    ANSWER = enum.auto()
    """Tell them that this is the part that goes on."""


def turn_on(probe: Probe, me: Peer, view: View, state: State) -> Turn:
    """Return what to do about a probe of who is not in the view: the larger part, then that of the newer view, wins."""
    if view.find(probe.sender.uuid) is not None or state is State.LEAVING:
        return Turn.NOTHING
    if state is State.ISOLATED:
        return Turn.JOIN if probe.size > 0 else Turn.NOTHING  # one that is isolated itself can take nobody in
    if view.coordinator.uuid != me.uuid:
        return Turn.REDIRECT
    ours = (len(view.members), view.epoch, me.uuid)
    return Turn.DISBAND if ours < (probe.size, probe.epoch, probe.sender.uuid) else Turn.ANSWER
