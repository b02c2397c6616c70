"""The parts of executions that other members lead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from shmjet.cluster.conducting import FollowedPart, Post
from shmjet.cluster.executions import MasterExecution
from shmjet.cluster.peer_messages import PartEnded, PartFailed, PartFinished, PreparePart
from shmjet.cluster.settings import LARGE_CODE
from shmjet.cluster.site import MemberServices
from shmjet.cluster.views import Peer, View
from shmjet.execution.failure import member_lost
from shmjet.execution.large import Large
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import NO_METRICS


class Following:
    """All of them, by the numbers of their executions.

    Args:
        services: of this member.
        first_worker: says where processor 0 of every vertex is placed.
        on_part: called with each part that begins.
        on_over: called with the execution's number when nothing of a part is left.
        permits: says of a name whether a job of it may run here; None where any code may.
    """

    def __init__(
        self,
        services: MemberServices,
        first_worker: Callable[[], int],
        on_part: Callable[[MasterExecution], None],
        on_over: Callable[[int], None],
        permits: Callable[[object], bool] | None = None,
    ) -> None:
        self._permits = permits
        self._services = services
        self._first_worker = first_worker
        self._on_part = on_part
        self._on_over = on_over
        self._followed: dict[int, FollowedPart] = {}

    def take(self, sender: str, message: Any, view: View, me: Peer, post: Post) -> None:
        """Take what a member of the view says about an execution; only its coordinator is listened to."""
        if isinstance(message, PreparePart):
            self._prepare(sender, message, view, me, post)
            return
        followed = self._followed.get(getattr(message, "execution", 0))
        if followed is not None and followed.coordinator == sender:
            followed.follow(message)

    def _prepare(self, sender: str, order: PreparePart, view: View, me: Peer, post: Post) -> None:
        if order.epoch != view.epoch or sender != view.coordinator.uuid:
            text = f"the cluster has changed while the job was being started (epoch {order.epoch}, now {view.epoch})"
            self._refuse(sender, order.execution, member_lost(text, member=me.address), post)
            return
        if self._permits is not None and not self._permits(order.submission.named):
            text = f"member {me.address} runs only the jobs of its own configuration (allow_code is off)"
            failure = Failure("error", None, -1, -1, me.pid, "AuthenticationError", text, [], None, member=me.address)
            self._refuse(sender, order.execution, failure, post)
            return
        code = Large.of(order.submission.code, LARGE_CODE)
        followed = FollowedPart(sender, me, order.seat.peers, post, self._over)
        part = MasterExecution(
            order.execution,
            msgspec.structs.replace(order.submission, code=code.inline, code_size=code.size),
            code,
            self._services,
            self._first_worker(),
            lambda _: None,
            followed.over,
            followed,
            order.logs,
        )
        followed.part = part
        self._followed[order.execution] = followed
        self._on_part(part)
        part.deploy(order.probed, order.seat)

    def _refuse(self, sender: str, execution: int, failure: Failure, post: Post) -> None:
        """Take no part in an execution."""
        post.send(sender, PartFailed(execution, failure))
        post.send(sender, PartEnded(execution))
        post.send(sender, PartFinished(execution, NO_METRICS))

    @property
    def parts(self) -> list[MasterExecution]:
        """All parts of which something is left."""
        return [followed.part for followed in self._followed.values() if followed.part is not None]

    def leader_of(self, execution: int) -> str | None:
        """Return who coordinates an execution of which this member has a part; None when nobody else does."""
        followed = self._followed.get(execution)
        return None if followed is None else followed.coordinator

    def _over(self, execution: int) -> None:
        self._on_over(execution)
        followed = self._followed.pop(execution, None)
        if followed is not None and followed.part is not None:
            followed.part.code.close()

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> list[int]:
        """Take that members are gone; returns the executions of which one of them was the coordinator."""
        gone = set(uuids)
        led = [number for number, followed in self._followed.items() if followed.coordinator in gone]
        for followed in list(self._followed.values()):
            followed.members_lost(gone, failure)
        return led

    def orphan_all(self, why: str) -> None:
        """Stop everything that others lead."""
        for followed in list(self._followed.values()):
            followed.orphan(why)
