"""The events that membership reports to the member, and its settings."""

from __future__ import annotations

import enum

import msgspec

from shmjet.cluster.membership.failure_detector import DetectorSettings, detector_for
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.partitions.table import PartitionTable


class State(enum.Enum):
    """How a member stands to the cluster."""

    JOINING = enum.auto()
    MEMBER = enum.auto()
    ISOLATED = enum.auto()
    """It has lost more than half of the others, does nothing, and waits to hear from them."""
    LEAVING = enum.auto()
    LEFT = enum.auto()
    REFUSED = enum.auto()


class MembershipSettings(msgspec.Struct, frozen=True):
    """Times in seconds.

    Args:
        detector: how patient to be with the others.
        join_patience: how long a joining process waits for silent addresses before it founds a cluster.
        join_interval: how often it asks to join.
        probe_interval: how often a coordinator looks for members at addresses where there should be some.
        complaint_grace: for how long a member must not hear another before the younger of the two has to go.
        leave_patience: how long a leaving member waits for the others to agree.
        own_pause: a gap between two ticks above which it is we who were away, not the others.
    """

    detector: DetectorSettings = msgspec.field(default_factory=DetectorSettings)
    join_patience: float = 3.0
    join_interval: float = 0.2
    probe_interval: float = 1.0
    complaint_grace: float = 1.0
    leave_patience: float = 1.5
    own_pause: float = 0.9


def membership_settings(longest_silence: float) -> MembershipSettings:
    """Return the usual settings, or those of machines that may stand still for longer."""
    usual = MembershipSettings()
    return MembershipSettings(
        detector=detector_for(longest_silence),
        join_patience=min(max(usual.join_patience, longest_silence + 0.8), 5 * usual.join_patience),
    )


class ViewInstalled(msgspec.Struct, frozen=True):
    """There is a new view; of the `old` view's members, `lost` are gone and `left` have said goodbye."""

    view: View
    old: View | None
    joined: tuple[Peer, ...]
    lost: tuple[Peer, ...]
    left: tuple[Peer, ...]


class TableInstalled(msgspec.Struct, frozen=True):
    """There is a new table of partitions: of a new view, which has been reported before, or of the same one."""

    table: PartitionTable


class PartitionsLost(msgspec.Struct, frozen=True):
    """No member has all of these partitions any more: they begin anew, empty. Reported where the view was proposed."""

    partitions: tuple[int, ...]


class StoredRunsWanted(msgspec.Struct, frozen=True):
    """The runs that a member has on disk are needed here; `Membership.has_runs_of` follows. It is reported again."""

    member: str


class WasIsolated(msgspec.Struct, frozen=True):
    """We have lost touch with these, which is more than half; what they took part in has failed.

    `others` are all other members of the view: some may be heard, and not hear us, or be isolated, too.
    """

    lost: tuple[Peer, ...]
    others: tuple[Peer, ...]


class WasFenced(msgspec.Struct, frozen=True):
    """The others went on without us: everything has failed, and we join again as `me`."""

    me: Peer
    others: tuple[Peer, ...]


class JoinFailed(msgspec.Struct, frozen=True):
    """The cluster does not take us; `text` says why."""

    text: str


class HasLeft(msgspec.Struct, frozen=True):
    """The others know that we go."""


Event = (
    ViewInstalled | TableInstalled | PartitionsLost | StoredRunsWanted | WasIsolated | WasFenced | JoinFailed | HasLeft
)
