"""Requests and news about observables: what jobs write, and what observers are sent.

They belong to `shmjet.cluster.protocol`, which has the conventions. The coordinator keeps the observables
(`shmjet.cluster.member.observables`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from shmjet.core.checks import LONGEST_OBSERVABLE_NAME
from shmjet.execution.messages import Failure

OLDEST = -1
"""A sequence: that of the oldest item that is kept."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_OBSERVABLE_NAME)]


class WriteObservable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Add items, a pickled list of `count`. Only processors of the members do."""

    request: int
    name: Name
    count: Annotated[int, msgspec.Meta(ge=1)]
    items: bytes


class ReadObservable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Ask for what comes next: one `Observed`, as soon as there is something. `Done` comes at once.

    Args:
        subscription: the client's number for this reader; a later request of the same number replaces this one.
        sequence: from where on, or `OLDEST`.
        store, ring: those of the last `Observed`; 0 before the first.
    """

    request: int
    subscription: int
    name: Name
    sequence: int = OLDEST
    store: int = 0
    ring: int = 0


class LeaveObservable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Want nothing more for a subscription."""

    request: int
    subscription: int


class ConfigureObservable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Set how many items an observable keeps, before it is used."""

    request: int
    name: Name
    capacity: Annotated[int, msgspec.Meta(ge=1)]


class DestroyObservable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Remove an observable; its readers are told. If there is none, that is not an error."""

    request: int
    name: Name


ObservableRequest = WriteObservable | ReadObservable | LeaveObservable | ConfigureObservable | DestroyObservable


class JobEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of a job that wrote to an observable.

    Args:
        job: how the job is called in a text.
        others: jobs that write to the observable and go on.
        failure: what it failed with.
        cancelled: it was cancelled.
        is_old: another job that writes to the observable has begun since.
    """

    job: str
    others: int
    failure: Failure | None = None
    cancelled: bool = False
    is_old: bool = False


class ObservedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A pickled list of `count` items, or the end of a job, which counts as one in the sequence."""

    count: int
    items: bytes = b""
    end: JobEnd | None = None


class Observed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What an observable has for a reader.

    Args:
        subscription: of the request.
        store: the keeper of the observable; 0: the observable has been destroyed.
        ring: its number there: a new one of the same name has another.
        sequence: of the first item in `frames`.
        skip: items of the first frame that the reader is not to get.
        frames: in order.
        is_written: whether a run writes to it, at whose end the reader will hear of that.
    """

    subscription: int
    store: int
    ring: int = 0
    sequence: int = 0
    skip: int = 0
    frames: list[ObservedFrame] = []
    is_written: bool = False
