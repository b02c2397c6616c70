"""What is said of a process that is gone is what is known of it."""

from __future__ import annotations

import pytest

from shmjet.execution.failure import worker_lost


@pytest.mark.parametrize(
    ("pid", "signal", "status", "text"),
    [
        (
            7,
            9,
            -9,
            r"worker 1 \(pid 7\) was killed by SIGKILL \(the kernel's out-of-memory killer does that too.*it ran",
        ),
        (7, 11, -11, r"worker 1 \(pid 7\) was killed by SIGSEGV; it ran 'a'"),
        (7, 0, 3, r"worker 1 \(pid 7\) exited with status 3; it ran 'a'"),
        (7, 0, None, r"worker 1 \(pid 7\) has ended, and its fork server has not said how; it ran 'a'"),
        (0, 0, None, r"worker 1 could not be forked; .*RLIMIT_NPROC.*; it was to run 'a'"),
    ],
)
def test_the_end_of_a_worker_is_told_as_it_was(pid: int, signal: int, status: int | None, text: str) -> None:
    failure = worker_lost(worker=1, pid=pid, signal=signal, status=status, vertices=["a"], carrier=False)
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(failure.text)
