"""The loop of a worker or carrier: one process, one thread, many tasklets taking turns.

Each round every tasklet that may have something to do gets one bounded call. When a whole round moved nothing, the
worker spins for `idle_min`, then sleeps on its doorbell until a lane has items or room, a command has come or, at
the latest, a second has passed. Tasklets that poll something outside make it sleep for `idle_min` doubling to
`idle_max` instead (Jet's BackoffIdleStrategy).

The cyclic garbage collector does not run inside calls: it is off, and run between rounds.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from shmjet.execution import control
from shmjet.execution.channel import Channel, ChannelClosed
from shmjet.execution.child import flush_output
from shmjet.execution.control import WorkerControl
from shmjet.execution.deployment import Deployment
from shmjet.execution.failure import make_failure
from shmjet.execution.messages import (
    Cancel,
    Deploy,
    Ended,
    Failed,
    Finish,
    Finished,
    Forget,
    Hello,
    Probe,
    Ready,
    Start,
    Stop,
    WorkerSettings,
)
from shmjet.execution.probing import Probing
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.tasklet import ProcessorTasklet

_LONGEST_SLEEP_NS = 1_000_000_000
_GC_YOUNG = 20_000
_GC_MIDDLE_EVERY = 20
_GC_FULL_SHARE = 20

logger = logging.getLogger("shmjet.worker")


class Worker:
    """Runs tasklets until it is told to stop or its member is gone.

    Args:
        index: the worker's index, or `worker_count + k` for the k-th carrier of an execution.
        channel: to the member.
        control_memory: the control segment.
        block: this process' own control block.
        settings: what the member said when it asked for this process.
        open_grid: opens the member's maps and lists in this process; called at most once, when first needed.
    """

    def __init__(
        self,
        index: int,
        channel: Channel,
        control_memory: memoryview,
        block: WorkerControl,
        settings: WorkerSettings,
        open_grid: Callable[[], Any],
    ) -> None:
        self._index = index
        self._channel = channel
        self._block = block
        self._bell = block.doorbell
        self._settings = settings
        self._shared = SharedMemory(control_memory)
        self._open_grid = open_grid
        self._grid: Any = None
        self._deployments: dict[int, Deployment] = {}
        self._probings: dict[int, Probing] = {}
        self._tasklets: list[tuple[ProcessorTasklet, Deployment]] = []
        self._stopping = False
        self._backoff_ns = 0
        self._collections = 0
        self._full_cost_ns = 0
        self._next_full_ns = 0

    def run(self) -> None:
        """Serve until `Stop`, or until the member's end of the channel is closed."""
        self._block.words[control.PID] = os.getpid()
        gc.disable()
        seen = self._bell.commands
        try:
            self._channel.send(Hello(os.getpid()))
            self._handle_commands()
            while not self._stopping:
                commands = self._bell.commands
                if commands != seen:
                    seen = commands
                    self._handle_commands()
                elif not self._round() and self._idle(seen):
                    self._handle_commands()
        except ChannelClosed:
            pass
        finally:
            for deployment in list(self._deployments.values()):
                deployment.close_processors()
            if self._grid is not None:
                self._grid.close()

    # -- rounds -------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Give every tasklet that may have something to do one call; True when any made progress."""
        start = perf_counter_ns()
        words = self._block.words
        progress = False
        ended: list[Deployment] = []
        for tasklet, deployment in self._tasklets:
            if not (tasklet.dirty or tasklet.poller.ready() or tasklet.polling):
                continue
            tasklet.dirty = False
            words[control.CURRENT_EXECUTION] = deployment.execution_id
            try:
                if tasklet.call():
                    tasklet.dirty = True
                    progress = True
                if tasklet.done:
                    tasklet.close()
                    ended.append(deployment)
            except BaseException as error:
                self._fail(deployment, error, tasklet)
                return True
        if ended:
            self._tasklets = [pair for pair in self._tasklets if not pair[0].done]
            for deployment in ended:
                deployment.running -= 1
                if deployment.running == 0:
                    self._report_end(deployment)
            self._block.words[control.TASKLETS] = len(self._tasklets)
        now = perf_counter_ns()
        words[control.CURRENT_EXECUTION] = 0
        words[control.HEARTBEAT_NS] = now
        words[control.ROUNDS] += 1
        words[control.BUSY_NS] += now - start
        if progress:
            self._backoff_ns = 0
            if gc.get_count()[0] > _GC_YOUNG:
                self._collect(now)
        return progress

    def _idle(self, seen: int) -> bool:
        """Sleep until something can be done; True when the command channel should be looked at."""
        timeout = _LONGEST_SLEEP_NS
        spin = self._settings.idle_min_ns if self._settings.spin and self._tasklets else 0
        if any(tasklet.polling for tasklet, _ in self._tasklets):
            low, high = self._settings.idle_min_ns, self._settings.idle_max_ns
            self._backoff_ns = min(max(low, self._backoff_ns * 2), high)
            timeout, spin = self._backoff_ns, 0
        start = perf_counter_ns()
        woken = self._bell.wait([tasklet.poller for tasklet, _ in self._tasklets], seen, spin, timeout)
        now = perf_counter_ns()
        words = self._block.words
        words[control.HEARTBEAT_NS] = now
        words[control.IDLE_NS] += now - start
        words[control.SLEEPS] += 1
        return not woken and timeout == _LONGEST_SLEEP_NS

    def _collect(self, now: int) -> None:
        """Run the collector: young objects often, all of them so that it costs a twentieth of the time at most."""
        self._collections += 1
        if now >= self._next_full_ns and self._collections % (_GC_MIDDLE_EVERY * 5) == 0:
            gc.collect(2)
            self._full_cost_ns = perf_counter_ns() - now
            self._next_full_ns = now + self._full_cost_ns * _GC_FULL_SHARE
        else:
            gc.collect(1 if self._collections % _GC_MIDDLE_EVERY == 0 else 0)

    # -- commands -----------------------------------------------------------------------------------------------

    def _handle_commands(self) -> None:
        for command, fds in self._channel.poll():
            match command:
                case Deploy():
                    self._deploy(command, fds)
                case Start():
                    self._start(command.execution_id)
                case Cancel():
                    self._cancel(command.execution_id)
                case Finish():
                    self._finish(command)
                case Probe():
                    self._probe(command)
                case Forget():
                    self._shared.forget(command.arena_id)
                case Stop():
                    self._stopping = True

    def grid(self) -> Any:
        """Open the member's maps and lists when they are first asked for."""
        if self._grid is None:
            self._grid = self._open_grid()
        return self._grid

    def _probe(self, command: Probe) -> None:
        probing = self._probings[command.execution_id] = Probing(command, self.grid)
        try:
            answer = probing.run()
        except BaseException as error:
            failure = make_failure(error, vertex=probing.vertex, processor_index=-1, worker=self._index)
            self._channel.send(Failed(command.execution_id, failure))
        else:
            self._channel.send(answer)

    def _deploy(self, command: Deploy, fds: list[int]) -> None:
        deployment = Deployment(command, self._index, self.grid)
        self._deployments[command.execution_id] = deployment
        try:
            deployment.create(self._shared, fds)
            deployment.init()
        except BaseException as error:
            self._fail(deployment, error, None)
        else:
            self._channel.send(Ready(command.execution_id))

    def _start(self, execution_id: int) -> None:
        deployment = self._deployments.get(execution_id)
        if deployment is None or deployment.ended:
            return
        deployment.running = len(deployment.tasklets)
        self._tasklets += [(tasklet, deployment) for tasklet in deployment.tasklets]
        self._block.words[control.TASKLETS] = len(self._tasklets)
        if deployment.running == 0:
            self._report_end(deployment)

    def _cancel(self, execution_id: int) -> None:
        deployment = self._deployments.get(execution_id)
        if deployment is not None and not deployment.ended:
            self._drop(deployment)
            self._report_end(deployment)

    def _fail(self, deployment: Deployment, error: BaseException, tasklet: ProcessorTasklet | None) -> None:
        vertex, processor, hint = deployment.blame(error, tasklet)
        failure = make_failure(error, vertex=vertex, processor_index=processor, worker=self._index, hint=hint)
        error.__traceback__ = None
        self._drop(deployment)
        self._channel.send(Failed(deployment.execution_id, failure))
        self._report_end(deployment)

    def _drop(self, deployment: Deployment) -> None:
        """Take the execution's tasklets off the list and close its processors."""
        self._tasklets = [pair for pair in self._tasklets if pair[1] is not deployment]
        self._block.words[control.TASKLETS] = len(self._tasklets)
        deployment.close_processors()

    def _report_end(self, deployment: Deployment) -> None:
        deployment.ended = True
        flush_output()
        self._channel.send(Ended(deployment.execution_id, deployment.has_suppliers))

    def _finish(self, command: Finish) -> None:
        deployment = self._deployments.pop(command.execution_id, None)
        if deployment is not None:
            deployment.close_suppliers(command.error)
            deployment.release()
        probing = self._probings.pop(command.execution_id, None)
        if probing is not None:
            probing.close(command.error)
        self._channel.send(Finished(command.execution_id))
        del deployment
        gc.collect()
