"""Jobs that a member knows by its own configuration: `[jobs]` in its file, a name for a function each.

The function is called in a process of its own, started for that, because a member runs no code but shmjet's. It returns
the DAG or the pipeline (`named_main`), which comes back as a `Submission`, as if a client had sent it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from shmjet.cluster.protocol import Submission
from shmjet.data.decoders import from_msgpack
from shmjet.data.errors import ConfigError, JobNotFoundError
from shmjet.host.own_code import program

BUILD_S = 60.0
"""How long a function may take."""
_MOST_AT_ONCE = 4
"""Processes that make jobs at the same time, however many jobs clients ask for."""


class Built(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The function has returned a job."""

    submission: Submission


class NotBuilt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """It has not; `text` says why, with its traceback."""

    text: str


class NamedJobs:
    """The jobs of one member's configuration.

    Args:
        functions: "module:function" by name.
    """

    def __init__(self, functions: Mapping[str, str]) -> None:
        self._functions = dict(functions)
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    async def make(self, name: str, job_id: str) -> Submission:
        """Return a job, made anew, so that a changed module counts.

        Args:
            name: of the configuration.
            job_id: that the job is to have.

        Raises:
            JobNotFoundError: the configuration has no such name.
            ConfigError: the function is not there, raises, takes too long or returns something else.
        """
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise JobNotFoundError(f"no job {name!r} is in this member's configuration; there is {known}")
        async with self._turns:
            answer = await _run(function, name, job_id)
        if isinstance(answer, NotBuilt):
            raise ConfigError(f"job {name!r} of this member's configuration ({function}) cannot be made: {answer.text}")
        return msgspec.structs.replace(answer.submission, named=name)


async def _run(function: str, name: str, job_id: str) -> Built | NotBuilt:
    """Have the function called in a process of its own, and wait for it."""
    answer = os.memfd_create("shmjet-named-job", os.MFD_CLOEXEC)
    code = program("from shmjet.cluster.client.named_job_main import main; main()")
    with open(answer, "rb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(answer), function, name, job_id, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[answer],
            process_group=0,
        )
        try:
            await asyncio.wait_for(_exit_of(process), BUILD_S)
        except TimeoutError:
            return NotBuilt(f"it took more than {BUILD_S:.0f} s")
        finally:
            process.kill()
            status = process.wait()
        stream.seek(0)  # both have the same place in it
        try:
            return from_msgpack(stream.read(), Built | NotBuilt)
        except msgspec.DecodeError:
            return NotBuilt(f"its process ended with status {status} and did not say why")


async def _exit_of(process: subprocess.Popen[bytes]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    fd = os.pidfd_open(process.pid)
    try:
        loop.add_reader(fd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
