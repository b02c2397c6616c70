"""The fork server: a single-threaded process that forks workers and carriers and reaps them.

It is forked from a fresh interpreter that has imported only what member and workers need alike, before that has a
thread, so that no lock and no thread of anyone else is copied into children (`shmjet/cluster/member/main.py`); the
threads of BLAS and OpenMP are set to one before numpy is imported. Children share the pages of all that it has imported
and start in milliseconds. They are forked by its only thread, which lives as long as the process: `PR_SET_PDEATHSIG` is
tied to the forking thread. When the member dies the kernel kills the fork server, and with it
all children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

from shmjet.execution.messages import Exited, Fork, Forked
from shmjet.host.child_process import die_with_parent, flush_output, leave_terminal, name_process
from shmjet.host.memory_reserve import hold_reserve, release_reserve
from shmjet.host.process_limits import NO_PROCESS
from shmjet.ipc.channel import Channel, ChannelClosed

_DEATH_S = 0.3
"""Seconds that a child whose code has failed waits before it says so. Where its member has died, which is why most
things fail then, it is killed in this time, and its end is not reported."""

RunChild = Callable[[Fork, list[int]], None]
"""What a child runs: the request, and the descriptors that came with it (channel, control segment, arena)."""


class ForkServer:
    """Serves `Fork` requests until the member is gone.

    Args:
        channel: to the member.
        run_child: runs in each child; when it returns the child exits.
        owner: what the children belong to, for the list of processes.
        client: a pidfd of the process served, where that may leave copies of its end of the channel to children.
    """

    def __init__(self, channel: Channel, run_child: RunChild, owner: str, client: int | None = None) -> None:
        self._client = client
        self._channel = channel
        self._run_child = run_child
        self._owner = owner
        self._wakeup, self._wakeup_writer = socket.socketpair()
        self._wakeup.setblocking(False)
        self._wakeup_writer.setblocking(False)

    def run(self) -> None:
        """Serve; returns when the member's end of the channel is closed, or the client is dead."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        # It was off while modules were imported. What they leave is little and stays: to look for it would take a tenth
        # of the start, and copy pages that are shared with the member.
        gc.freeze()
        gc.enable()
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            if self._client is not None:
                selector.register(self._client, selectors.EVENT_READ)
            try:
                while True:
                    for key, _ in selector.select():
                        if key.fileobj is self._wakeup:
                            self._wakeup.recv(4096)
                            self._reap()
                        elif key.fileobj == self._client:
                            return
                        else:
                            self._fork(*self._channel.receive(), selector)
                            while self._channel.has_message:
                                self._fork(*self._channel.receive(), selector)
            except ChannelClosed:
                return

    def _fork(self, request: Fork, fds: list[int], selector: selectors.BaseSelector) -> None:
        """Fork one child, which keeps `fds` only: a sibling's channel held open would hide that one's death.

        Requests are taken one by one, so that a hundred carriers do not need all their descriptors here at once.
        """
        flush_output()
        hold_reserve()  # for the child, which then has its own
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # the member sees the end of the child's channel and fails who needs it
            print(f"shmjet: a process cannot be forked: {error}; see {NO_PROCESS}", file=sys.stderr, flush=True)
            pid = -1
        if pid == 0:
            status = 1
            try:
                die_with_parent(server)
                leave_terminal()
                selector.close()
                self._channel.close()
                self._wakeup.close()
                self._wakeup_writer.close()
                if self._client is not None:
                    os.close(self._client)
                kind = "carrier" if request.arena_size else "worker"
                core = "" if request.core is None else f", core {request.core}"
                name_process(f"shmjet-w{request.index}", f"{kind} {request.index} of {self._owner}{core}")
                self._run_child(request, fds)
                status = 0
            except BaseException:
                release_reserve()
                time.sleep(_DEATH_S)
                if os.getppid() == server:
                    traceback.print_exc()
            finally:
                flush_output()
                os._exit(status)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self._channel.send(Forked(request.token, pid))

    def _reap(self) -> None:
        """Collect dead children, and kill what they had forked and left in their process group."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(dead.si_pid, signal.SIGKILL)
            pid, status = os.waitpid(dead.si_pid, 0)
            self._channel.send(Exited(pid, os.waitstatus_to_exitcode(status)))


def serve(sock: socket.socket, run_child: RunChild, owner: str) -> None:
    """Be a fork server on this socket until the member is gone, then exit the process.

    Args:
        owner: what the children belong to, for the list of processes.
    """
    name_process("shmjet-fork", f"fork server of {owner}")
    ForkServer(Channel(sock, Fork), run_child, owner).run()
    sys.stdout.flush()
    os._exit(0)
