"""Requests that may be sent again when it is not known whether they were carried out: a second time does no harm.

A request can be lost with the member that was to answer it, with the coordinator, or with the connection between them.
The sender, a client or the member that forwarded it, asks here then.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    RestartExecution,
    ResumeExecution,
    SuspendExecution,
)
from shmjet.cluster.observable_messages import ConfigureObservable, DestroyObservable, LeaveObservable, ReadObservable
from shmjet.cluster.protocol import (
    CancelExecution,
    Describe,
    DescribePartitions,
    DumpAll,
    Execute,
    GetJob,
    GetMetrics,
    GridCall,
    ListJobs,
    Ping,
    StatusRequest,
    Upload,
    Watch,
)

_ALWAYS = (
    Execute,
    CancelExecution,
    SuspendExecution,
    ResumeExecution,
    RestartExecution,
    ListSnapshots,
    DestroySnapshot,
    GetMetrics,
    ListJobs,
    GetJob,
    Watch,
    Upload,
    Describe,
    DescribePartitions,
    StatusRequest,
    DumpAll,
    Ping,
    ConfigureObservable,
    DestroyObservable,
    LeaveObservable,
    ReadObservable,
)


def is_idempotent(request: Any) -> bool:
    """Say whether a request may be asked again.

    Operations on maps and lists may where the client knows the store: who coordinates now sees whether it has that one
    still, and the store has the result of what was done (`shmjet.grid.kept_results`). Exports may where they have a
    token.
    """
    match request:
        case GridCall():
            return request.store != 0 or request.member != ""
        case ExportSnapshot():
            return request.token != ""
    return isinstance(request, _ALWAYS)


def as_waited(request: Any, seconds: float) -> Any:
    """Return a request that has waited for so many seconds before any member looked at it, since it was asked again.

    A request that no member was asked before stays as new as it was.
    """
    if isinstance(request, Execute | RestartExecution) and request.age > 0:
        return msgspec.structs.replace(request, age=request.age + seconds)
    return request


def as_retry(request: Any, seconds: float) -> Any:
    """Return a request as it is asked again.

    Args:
        request: that was asked before.
        seconds: how long ago that was.
    """
    if isinstance(request, Execute | RestartExecution):
        return msgspec.structs.replace(request, age=request.age + seconds)
    if isinstance(request, GridCall | SuspendExecution | ResumeExecution | ExportSnapshot):
        return msgspec.structs.replace(request, again=True)
    return request
