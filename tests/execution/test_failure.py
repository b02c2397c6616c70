"""What a failure says, and what comes of it at the client."""

from __future__ import annotations

import os

import msgspec

from shmjet.core import JobFailedError, PlanError
from shmjet.execution.failure import make_failure, member_failed, to_exception
from shmjet.ring.arena import ArenaError


def test_what_a_member_cannot_do_has_its_error_as_the_cause_and_blames_no_worker() -> None:
    for cause in (PlanError("no member is there"), ArenaError(28, "no shared memory")):
        failure = msgspec.structs.replace(member_failed(cause), member="10.0.0.2:5701")
        error = to_exception(failure, member="10.0.0.1:5701", job="'far'")
        assert isinstance(error, JobFailedError)
        assert str(error).startswith(
            f"job 'far' failed (member 10.0.0.2:5701, pid {os.getpid()}): {type(cause).__name__}\n"
        )
        assert type(error.cause) is type(cause)
        assert str(error.cause) == str(cause)
        assert error.member == "10.0.0.2:5701"


def test_what_a_processor_raised_names_its_worker() -> None:
    failure = make_failure(ValueError("no"), vertex="v", processor_index=3, worker=1)
    error = to_exception(failure, member="10.0.0.1:5701", job="'near'")
    assert str(error).startswith(f"job 'near' failed in vertex 'v', processor 3 (worker 1, pid {os.getpid()}): Value")
