"""The participants of one member: its parts in attempts, its own and those led by other members.

What processes report, and what coordinators order, goes to the part that it is about.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from shmjet.cluster.jobs.context import MemberServices
from shmjet.cluster.jobs.endpoints import connect_endpoint
from shmjet.cluster.jobs.participant import Assignment, Participant
from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.cluster.membership.peer_messages import PartEnded, PartFailed, PartFinished, PreparePart, ProbePart
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.processes.workers import Child
from shmjet.cluster.protocol import ConnectEndpoint, ConnectInline, EndpointConnected, Refused
from shmjet.cluster.requests.client_connections import LocalClient
from shmjet.cluster.requests.log_relay import LogRelay
from shmjet.cluster.requests.post import JobPost, Payload
from shmjet.cluster.settings import LARGE_CODE
from shmjet.execution import control
from shmjet.execution.failure import member_failed, member_lost
from shmjet.execution.messages import Failure
from shmjet.execution.metrics import NO_METRICS
from shmjet.ipc.inline_or_memfd import InlineOrMemfd


class ParticipantRegistry:
    """All of them, by the numbers of their attempts.

    Args:
        logs: brings records of the processes' loggers, None for a member without a network.
        on_begin: called when one begins.
        permits: says of a name whether a job of it may run here for others; None where any code may.
    """

    def __init__(
        self, logs: LogRelay | None, on_begin: Callable[[], None], permits: Callable[[object], bool] | None = None
    ) -> None:
        self._logs = logs
        self._on_begin = on_begin
        self._permits = permits
        self._participants: dict[int, Participant] = {}
        self._codes: dict[int, InlineOrMemfd] = {}
        """Of attempts that others coordinate; that of the own ones stays with the job."""
        self._held: dict[int, PreparePart] = {}
        """What waits for the end of an older attempt of the same run."""
        self._services: MemberServices
        self._post: JobPost

    def open(self, services: MemberServices, post: JobPost) -> None:
        """Take what participants use of this member.

        Args:
            services: of this member.
            post: to coordinators.
        """
        self._services = services
        self._post = post

    # -- what coordinators say ----------------------------------------------------------------------------------

    def admits(self, sender: str, order: PreparePart, view: View, me: Peer) -> bool:
        """Say whether to take part in what another member leads; tell it why not."""
        if order.epoch != view.epoch or sender != view.coordinator.uuid:
            text = f"the cluster has changed while the job was being started (epoch {order.epoch}, now {view.epoch})"
            failure = msgspec.structs.replace(member_lost(text, member=me.address), restartable=True)
        elif self._permits is not None and not self._permits(order.submission.named):
            text = f"member {me.address} runs only the jobs of its own configuration (allow_code is off)"
            failure = Failure("error", None, -1, -1, me.pid, "AuthenticationError", text, [], None, member=me.address)
        else:
            return True
        self._refuse(sender, order.execution, failure)
        return False

    def _refuse(self, coordinator: str, attempt: int, failure: Failure) -> None:
        """Tell a coordinator why there is no part here."""
        self._post.send(coordinator, PartFailed(attempt, failure))
        self._post.send(coordinator, PartEnded(attempt))
        self._post.send(coordinator, PartFinished(attempt, NO_METRICS))

    def take(self, sender: str, message: Any, payload: Payload) -> None:
        """Take an order; only the coordinator of an attempt is listened to.

        Args:
            sender: who says it.
            message: the order.
            payload: the code of the job, where it is not in the message.
        """
        if isinstance(message, ProbePart):
            joined = self._joined(sender, message, payload)
            if joined is not None:
                joined.probe(message)
        elif isinstance(message, PreparePart):
            joined = self._participants.get(message.execution) or self._joined(sender, message, payload)
            if joined is not None and joined.coordinator == sender:
                self._held[joined.id] = message
                self._prepare_held()
        else:
            participant = self._participants.get(getattr(message, "execution", 0))
            if participant is not None and participant.coordinator == sender:
                participant.order(message)

    def _joined(self, sender: str, order: ProbePart | PreparePart, payload: Payload) -> Participant | None:
        """Return a new part; None when there can be none, which the coordinator is told."""
        try:
            return self._join(sender, order, payload)
        except OSError as error:  # no descriptor, or no memory, for the code
            failure = member_failed(error)
        except Exception as error:
            failure = unexpected(error, f"before this member's part of job {order.submission.label}")
        self._refuse(sender, order.execution, failure)
        return None

    def _join(self, sender: str, order: ProbePart | PreparePart, payload: Payload) -> Participant:
        job = order.submission
        if isinstance(payload, InlineOrMemfd):
            code = payload
        else:
            code = self._codes[order.execution] = InlineOrMemfd.of(job.code, LARGE_CODE)
            job = msgspec.structs.replace(job, code=code.inline, code_size=code.size)
        assignment = Assignment(
            id=order.execution,
            run=order.run,
            job=job,
            code=code,
            coordinator=sender,
            first_worker=self._first_worker(),
        )
        participant = Participant(assignment, self._services, self._post, self._over)
        self._participants[participant.id] = participant
        self._on_begin()
        return participant

    def _prepare_held(self) -> None:
        """Have parts prepare of whose runs no older attempt has anything left here: they never run at once."""
        for number, order in list(self._held.items()):
            participant = self._participants[number]
            if not any(other.run == order.run and other is not participant for other in self._participants.values()):
                del self._held[number]
                participant.prepare(order)

    def _first_worker(self) -> int:
        """Place a lone job from worker 0 on, further ones from the worker with the fewest tasklets."""
        if not self._participants:
            return 0
        workers = self._services.workers.workers
        return min((child.block.words[control.TASKLETS], child.index) for child in workers)[1]

    def _over(self, participant: Participant) -> None:
        if self._logs is not None:
            try:  # as long as it is known who leads the attempt
                self._logs.drain()
                self._logs.ended(participant.id)
            except Exception as error:
                unexpected(error, f"while records of job {participant.name} were passed on")
        self._participants.pop(participant.id, None)
        self._held.pop(participant.id, None)
        code = self._codes.pop(participant.id, None)
        if code is not None:
            code.close()
        if self._held:
            self._prepare_held()

    # -- members ------------------------------------------------------------------------------------------------

    @property
    def led_elsewhere(self) -> list[Participant]:
        """The parts in what other members coordinate."""
        return [part for part in self._participants.values() if not self._post.is_own(part.coordinator)]

    def leader_of(self, attempt: int) -> str | None:
        """Return the other member that coordinates an attempt of a participant here; None when there is none."""
        participant = self._participants.get(attempt)
        if participant is None or self._post.is_own(participant.coordinator):
            return None
        return participant.coordinator

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> list[int]:
        """Take that members are gone; returns the runs of which one of them was the coordinator."""
        gone = set(uuids)
        parts = self.led_elsewhere
        led = [part.run for part in parts if part.coordinator in gone]
        for part in list(self._participants.values()):  # what has been sent to those led from here may be lost, too
            part.members_lost(gone, failure)
        return led

    def orphan_all(self, why: str) -> None:
        """Stop everything that others lead."""
        for part in self.led_elsewhere:
            part.orphan(why)

    # -- processes ----------------------------------------------------------------------------------------------

    def report(self, child: Child, message: Any, fds: list[int]) -> None:
        """Take what a process reports."""
        if self._logs is not None:
            self._logs.drain()  # what it has logged has been sent before it reports
        participant = self._participants.get(message.execution_id)
        if participant is not None:
            participant.report(child, message, fds)

    def child_lost(self, child: Child) -> None:
        """Take the death of a process."""
        for participant in list(self._participants.values()):
            participant.child_lost(child)

    # -- looking ------------------------------------------------------------------------------------------------

    def part_of(self, run: int) -> Participant | None:
        """Return this member's part of the newest attempt of a run."""
        return next((part for part in reversed(self._participants.values()) if part.run == run), None)

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._participants

    def name_of(self, attempt: int) -> str | None:
        """Return how the job of an attempt is called in messages; None when it is unknown."""
        participant = self._participants.get(attempt)
        return None if participant is None else participant.name

    def has_job(self, job_id: str) -> bool:
        """Say whether one of them is of a job."""
        return any(participant.job.job_id == job_id for participant in self._participants.values())

    def connect_endpoint(self, client: LocalClient, request: ConnectEndpoint | ConnectInline) -> None:
        """Give a client, whose user was checked when it connected, a socket to the processor at an endpoint."""
        participant = self.part_of(request.execution_id)

        def answer(child: Child | None) -> None:
            if child is None or participant is None:
                text = (
                    f"execution {request.execution_id} has ended; no processor is at its endpoint {request.endpoint!r}"
                )
                client.send(Refused(request.request, "ShmjetError", text))
            elif isinstance(request, ConnectInline):
                client.send(EndpointConnected(request.request))
                theirs = client.give_away()
                if theirs is not None:
                    connect_endpoint(child, participant.id, request.endpoint, theirs)
            else:
                ours, theirs = socket.socketpair()
                connect_endpoint(child, participant.id, request.endpoint, theirs)
                client.send_with(EndpointConnected(request.request), [ours.detach()])

        if participant is None:
            answer(None)
        else:
            participant.endpoints.connect(request.endpoint, answer)
