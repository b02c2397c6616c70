"""The handling of jobs and of clients' requests when members come, go, or cannot be reached.

`Network` reports what has happened. Attempts that span members fail with the name of the lost member; their runs say
what follows. Requests of clients that the lost coordinator has not answered are sent to the present one, or refused.
"""

from __future__ import annotations

from collections.abc import Callable

from shmjet.cluster.jobs.service import JobService
from shmjet.cluster.membership.events import ViewInstalled
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import CoordinatorLost, MembersAre, WatchAgain
from shmjet.cluster.requests.client_connections import Clients
from shmjet.cluster.requests.request_forwarder import RequestForwarder
from shmjet.execution.failure import member_lost
from shmjet.execution.messages import Failure


class MemberLossHandler:
    """See the module.

    Args:
        jobs: of this member.
        clients: of this member, and of others that ask it.
        forwarder: what its clients have asked of the coordinator.
        clear_grid: removes all maps and lists.
        clear_observables: removes all observables.
    """

    def __init__(
        self,
        jobs: JobService,
        clients: Clients,
        forwarder: RequestForwarder,
        clear_grid: Callable[[], None],
        clear_observables: Callable[[], None],
    ) -> None:
        self._jobs = jobs
        self._clients = clients
        self._forwarder = forwarder
        self._clear_grid = clear_grid
        self._clear_observables = clear_observables

    def view_changed(self, event: ViewInstalled, me: str) -> None:
        """Fail what those took part in that are gone, and ask again what the coordinator was asked when it is.

        Args:
            event: what has changed.
            me: this member.
        """
        self._clients.tell_remote(MembersAre([peer.address for peer in event.view.members]))
        gone = (*event.lost, *event.left)
        for peer in gone:
            left = peer in event.left
            text = f"member {peer.address} {'has left the cluster' if left else 'was lost'} while the job ran"
            self._members_gone((peer,), member_lost(text, member=peer.address))
        if event.old is not None and event.old.coordinator in gone and event.old.coordinator.uuid != me:
            why = f"member {event.old.coordinator.address}, which coordinated it, is gone"
            self._clients.tell_all(WatchAgain())
            self._forwarder.lost(why)

    def _members_gone(self, peers: tuple[Peer, ...], failure: Failure) -> None:
        uuids = [peer.uuid for peer in peers]
        self._jobs.members_lost(uuids, failure)
        for identity in uuids:
            self._clients.forwarded_gone(identity)

    def connection_lost(self, peer: Peer, why: str, view: View | None) -> None:
        """Fail what went over a connection that has broken; the coordinator is asked again when there is another."""
        text = f"the connection to member {peer.address} was lost while the job ran ({why})"
        self._members_gone((peer,), member_lost(text, member=peer.address))
        if view is not None and view.coordinator.uuid == peer.uuid:
            self._clients.tell_all(WatchAgain())
            self._forwarder.lost(f"the connection to member {peer.address}, which coordinates, was lost ({why})")

    def isolated(self, lost: tuple[Peer, ...], others: tuple[Peer, ...], address: str) -> None:
        """Stop everything: this is the smaller part of a cluster that was cut.

        Args:
            lost: the members that are not heard.
            others: all other members of the view. Some that are heard may not hear this one, or stop, too.
            address: of this member.
        """
        names = ", ".join(peer.address for peer in lost)
        failure = member_lost(f"member {address} has lost touch with {names}", member=names)
        self._jobs.isolated([peer.uuid for peer in others], failure)
        for peer in others:
            self._clients.forwarded_gone(peer.uuid)
        self._clients.tell_all(CoordinatorLost(failure.text))
        self._forwarder.lost(failure.text, is_over=True)

    def fenced(self, others: tuple[Peer, ...], why: str, address: str) -> None:
        """Give up everything: this member joins the others again, and their coordinator answers its clients."""
        names = ", ".join(peer.address for peer in others) or "none"
        failure = member_lost(
            f"member {address} was removed from its cluster, because {why}; remaining members: {names}", member=address
        )
        self._members_gone(others, failure)
        self._jobs.forget_all(failure)
        self._clear_observables()
        self._clients.tell_all(WatchAgain())
        self._forwarder.lost(failure.text, is_over=True)
        self._clear_grid()
