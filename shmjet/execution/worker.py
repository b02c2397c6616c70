"""The loop of a worker or carrier: one process, one thread, many tasklets taking turns.

Each round every tasklet that may have something to do gets one bounded call. When a whole round moved nothing, the
worker spins for `idle_min`, then sleeps on its doorbell until a lane has items or room, a command has come or, at
the latest, a second has passed, in a carrier four. Tasklets that poll something outside make it sleep for `idle_min`
doubling to `idle_max` instead (Jet's BackoffIdleStrategy).

The cyclic garbage collector does not run inside calls: it is off, and run between rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import perf_counter_ns, sleep
from typing import Any

from shmjet.core.latency_policy import strictest
from shmjet.execution import control
from shmjet.execution.control import BLOCK_SIZE, WorkerControl
from shmjet.execution.deployment import Deployment
from shmjet.execution.failure import make_failure
from shmjet.execution.foreign_errors import attempt, forget_frames, name_of
from shmjet.execution.garbage_collection import Collector
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.kept_services import KeptServices
from shmjet.execution.logs import listeners
from shmjet.execution.messages import (
    Adopt,
    Broken,
    Cancel,
    Commit,
    Committed,
    Deploy,
    Ended,
    EndpointConnection,
    Failed,
    Failure,
    Finish,
    Finished,
    Forget,
    Hello,
    Probe,
    Ready,
    Resolve,
    Save,
    Start,
    Stop,
    WorkerSettings,
)
from shmjet.execution.probe import Probing
from shmjet.execution.runnable import any_polls, any_postponed, due, earliest
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.execution.tasklet_metrics import PUBLISH_AFTER_NS
from shmjet.execution.work_stealing import Hosted, Stealing
from shmjet.host.child_process import flush_output
from shmjet.host.memory_reserve import hold_reserve, no_memory, release_reserve
from shmjet.ipc.channel import Channel, ChannelClosed, DescriptorsDropped

_LONGEST_SLEEP_NS = 1_000_000_000
_LONGEST_CARRIER_SLEEP_NS = 4_000_000_000
"""A carrier that has nothing to do shows less often that it lives: there may be hundreds, and each time its memory has
left the caches, so that it takes 0.2 ms."""
_DEATH_S = 5.0
"""Seconds for which a worker whose code has closed its descriptors waits to be killed."""
_NO_MEMORY = Broken("it had no memory left, by RLIMIT_AS (`ulimit -v`), the host or the container")


class Worker:
    """Runs tasklets until it is told to stop or its member is gone.

    Args:
        index: the worker's index, or `worker_count + k` for the k-th carrier of an execution.
        channel: to the member.
        control_memory: the control segment.
        block: this process' own control block.
        settings: what the member said when it asked for this process.
        open_grid: opens the member's maps and lists in this process; called at most once, when first needed.
        link_eventfd: what wakes the member's link process; -1 where there is none.
    """

    def __init__(
        self,
        index: int,
        channel: Channel,
        *,
        control_memory: memoryview,
        block: WorkerControl,
        settings: WorkerSettings,
        open_grid: Callable[[], Any],
        link_eventfd: int = -1,
    ) -> None:
        self._index = index
        self._channel = channel
        self._block = block
        self._bell = block.doorbell
        self._settings = settings
        self.shared = SharedMemory(control_memory, link_eventfd)
        self._open_grid = open_grid
        self._grid: Any = None
        self.deployments: dict[int, Deployment] = {}
        self._probings: dict[int, Probing] = {}
        self.tasklets: list[Hosted] = []
        self._waiting: list[Deployment] = []
        self._unannounced: list[Deployment] = []
        self._saving: list[Deployment] = []
        self.announce_at_ns = 0
        self._stopping = False
        self._longest_ns = _LONGEST_SLEEP_NS if index < settings.worker_count else _LONGEST_CARRIER_SLEEP_NS
        self._backoff_ns = self._publish_at_ns = 0
        self._has_company = False
        """Whether a job here has carriers, to which a worker that spins would deny its core."""
        self._interrupts = Interrupts(block.words)
        self._services = KeptServices(self._interrupts)
        self._collector = Collector()
        blocks = [WorkerControl(control_memory, worker * BLOCK_SIZE) for worker in range(settings.worker_count)]
        self._stealing = Stealing(index, blocks, settings.steal_margin)

    def run(self) -> None:
        """Serve until `Stop`, or until the member's end of the channel is closed."""
        self._block.words[control.PID] = os.getpid()
        self._interrupts.install()
        self._collector.take_over()
        seen = self._bell.commands
        try:
            self._channel.send(Hello(os.getpid()))
            self.handle_commands()
            while not self._stopping:
                commands = self._bell.commands
                if commands != seen:
                    seen = commands
                    self.handle_commands()
                elif not self.call_tasklets() and self.wait_for_work(seen):
                    self.handle_commands()
                if not hold_reserve():
                    self._fail_all(no_memory())
        except ChannelClosed:
            if not _is_open(self._channel.fileno()):
                sleep(_DEATH_S)  # the member finds out why, which an exit of its own would hide, and kills it
        except DescriptorsDropped as error:
            self._channel.send(Broken(str(error)))
            raise
        except MemoryError:
            release_reserve()
            self._channel.send(_NO_MEMORY)
            raise
        finally:
            for deployment in list(self.deployments.values()):
                deployment.close_processors(self._interrupts)
                deployment.close_suppliers("its member has ended", self._interrupts)
            self._services.close()
            if self._grid is not None:
                self._grid.close()

    # -- rounds -------------------------------------------------------------------------------------------------

    def call_tasklets(self) -> bool:
        """Give every tasklet that may have something to do one call; True when any made progress."""
        start = perf_counter_ns()
        words, interrupts = self._block.words, self._interrupts
        if words[control.THIEF]:
            self._answer_thief(start)
        progress = False
        ended: list[Deployment] = []
        for tasklet, deployment in due(self.tasklets):
            words[control.CURRENT_EXECUTION] = deployment.execution_id
            try:
                interrupts.is_open = True
                if tasklet.call():
                    progress = True
                if tasklet.done:
                    tasklet.close()
                    ended.append(deployment)
                interrupts.is_open = False
            except BaseException as error:
                interrupts.is_open = False
                self._fail(deployment, error, tasklet)
                progress = True
                break
        if ended:
            self.tasklets = [pair for pair in self.tasklets if not pair[0].done]
            for deployment in ended:
                deployment.running -= 1
                if deployment.running == 0 and not deployment.ended:
                    self._report_end(deployment)
            self._block.words[control.TASKLETS] = len(self.tasklets)
            self._stealing.look_for_work(len(self.tasklets), start)
        now = perf_counter_ns()
        words[control.CURRENT_EXECUTION] = 0
        words[control.HEARTBEAT_NS] = now
        words[control.ROUNDS] += 1
        words[control.BUSY_NS] += now - start
        if self._unannounced and now >= self.announce_at_ns:
            self._announce()
        for deployment in self._saving:
            self._report_snapshots(deployment)
        if progress:
            self._backoff_ns = 0
            self._collector.collect(now)
            if now >= self._publish_at_ns:
                self._publish_postponed(now)
        return progress

    def _publish_postponed(self, now: int) -> None:
        """Publish the numbers of tasklets that were called since these were published."""
        self._publish_at_ns = now + PUBLISH_AFTER_NS
        for tasklet, deployment in self.tasklets:
            if tasklet.meter.is_postponed:
                try:
                    with self._interrupts.around(deployment.execution_id):
                        tasklet.publish()
                except BaseException as error:  # a source tells its progress by code of users
                    self._fail(deployment, error, tasklet)
                    break

    def wait_for_work(self, seen: int) -> bool:
        """Sleep until something can be done; True when the command channel should be looked at."""
        if self._unannounced:
            self._announce()
        self._services.close_overdue()
        timeout = self._longest_ns
        may_spin = self._settings.spin and self.tasklets and not self._has_company
        spin = self._settings.idle_min_ns if may_spin else 0
        if any_polls(self.tasklets):
            low, high = self._settings.idle_min_ns, self._settings.idle_max_ns
            self._backoff_ns = min(max(low, self._backoff_ns * 2), high)
            timeout, spin = self._backoff_ns, 0
        start = perf_counter_ns()
        if start >= self._publish_at_ns:
            self._publish_postponed(start)
        elif any_postponed(self.tasklets):
            timeout = min(timeout, self._publish_at_ns - start)
        timer = earliest(self.tasklets)
        if timer:
            timeout = min(timeout, max(timer - start, 0))
        if self._stealing.look_for_work(len(self.tasklets), start):
            timeout = min(timeout, self._stealing.next_look_ns())
        woken = self._bell.wait([tasklet.poller for tasklet, _ in self.tasklets], seen, spin, timeout)
        now = perf_counter_ns()
        words = self._block.words
        words[control.HEARTBEAT_NS] = now
        words[control.IDLE_NS] += now - start
        words[control.SLEEPS] += 1
        return not woken and timeout == self._longest_ns

    def _answer_thief(self, now: int) -> None:
        """Hand a tasklet to the worker that asks for one, or none."""
        given = self._stealing.give(self.tasklets, now)
        if given is None:
            return
        self.tasklets = [pair for pair in self.tasklets if pair[0] is not given.tasklet]
        self._block.words[control.TASKLETS] = len(self.tasklets)
        self._channel.send(given.message, given.fds)
        for fd in given.fds:
            os.close(fd)
        if given.deployment.running == 0:
            self._report_end(given.deployment)

    # -- commands -----------------------------------------------------------------------------------------------

    def handle_commands(self) -> None:
        for command, fds in self._channel.poll():
            match command:
                case Deploy():
                    self._deploy(command, fds)
                case Start():
                    self._start(self.deployments.get(command.execution_id))
                case Cancel():
                    self._cancel(command)
                case Commit():
                    self._commit(command.execution_id)
                case Finish():
                    self._finish(command)
                case Adopt():
                    self._adopt(command, fds)
                case Save() | Resolve():
                    self._order(command)
                case Probe():
                    self._probe(command, fds)
                case Forget():
                    self.shared.forget(command.arena_id)
                case EndpointConnection():
                    self._connect_endpoint(command, fds)
                case Stop():
                    self._stopping = True
        if self._waiting:
            self._start_waiting()

    def grid(self) -> Any:
        """Open the member's maps and lists when they are first asked for."""
        if self._grid is None:
            self._grid = self._open_grid()
        return self._grid

    def _probe(self, command: Probe, fds: list[int]) -> None:
        listeners.add(command.job_id, command.execution_id, command.logs)
        probing = self._probings[command.execution_id] = Probing(command, self.grid)
        try:
            with self._interrupts.around(command.execution_id):
                answer = probing.run(fds)
        except BaseException as error:
            failure = self._failure_of(command.execution_id, error, probing.vertex, -1)
            self._channel.send(Failed(command.execution_id, failure))
        else:
            self._channel.send(answer)

    def _commit(self, execution_id: int) -> None:
        blamed: tuple[str | None, int] = None, -1
        try:
            with self._interrupts.around(execution_id):
                for vertex, processor, commit in self._commits_of(execution_id):
                    blamed = vertex, processor
                    commit()
        except BaseException as error:
            failure = self._failure_of(execution_id, error, *blamed)
            self._channel.send(Failed(execution_id, failure))
        else:
            self._channel.send(Committed(execution_id))

    def _commits_of(self, execution_id: int) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """Yield what is to be called, with the vertex and processor to blame for what it raises."""
        deployment, probing = self.deployments.get(execution_id), self._probings.get(execution_id)
        if deployment is not None:
            yield from deployment.commits()
        if probing is not None:
            yield from probing.commits()

    def _deploy(self, command: Deploy, fds: list[int]) -> None:
        listeners.add(command.job_id, command.execution_id, command.logs)
        services = self._services.begin(command.job_id, command.execution_id)
        deployment = Deployment(command, self._index, self.grid, self._channel.send, services=services)
        self.deployments[command.execution_id] = deployment
        try:
            with self._interrupts.around(command.execution_id):
                probing = self._probings.get(command.execution_id)
                deployment.create(self.shared, fds, None if probing is None else probing.prepared)
                deployment.init()
        except BaseException as error:
            self._fail(deployment, error, None)
        else:
            self._ready(deployment)

    def _ready(self, deployment: Deployment) -> None:
        """Start if all are ready, and wake the processes that wait for it; else tell the member and wait."""
        if not deployment.takes_part:  # a tasklet will come
            deployment.started = True
            if deployment.snapshots is not None:
                self._saving.append(deployment)
        elif deployment.say_ready():
            deployment.wake_waiting()
            self._unannounced.append(deployment)
            self.announce_at_ns = perf_counter_ns() + deployment.policy.start_report_ns
            self._start(deployment)
        else:
            self._channel.send(Ready(deployment.execution_id))
            self._waiting.append(deployment)

    def _announce(self) -> None:
        """Tell the member of executions that have not ended in a moment: it may be waiting to hear that they run."""
        for deployment in self._unannounced:
            if not deployment.ended:
                self._channel.send(Ready(deployment.execution_id))
        self._unannounced.clear()

    def _start_waiting(self) -> None:
        for deployment in self._waiting:
            if not deployment.ended and deployment.all_ready():
                self._start(deployment)
        self._waiting = [d for d in self._waiting if not (d.started or d.ended)]

    def _start(self, deployment: Deployment | None) -> None:
        """Put the tasklets on the list, unless that has been done."""
        if deployment is None or deployment.started or deployment.ended:
            return
        deployment.say_started()
        deployment.services.close_unclaimed()
        deployment.running = len(deployment.tasklets)
        if deployment.snapshots is not None:
            self._saving.append(deployment)
        self._begin_to_run(deployment)
        self.tasklets += [(tasklet, deployment) for tasklet in deployment.tasklets]
        self._block.words[control.TASKLETS] = len(self.tasklets)
        if deployment.steals:
            self._stealing.wake_thieves(len(self.tasklets))
        if deployment.running == 0:
            self._report_end(deployment)

    def _begin_to_run(self, deployment: Deployment) -> None:
        """Keep to what a job asks of the processes that it runs in."""
        self._collector.policy = strictest((deployment.policy, self._collector.policy))
        self._has_company = self._has_company or deployment.has_carriers

    def _adopt(self, command: Adopt, fds: list[int]) -> None:
        deployment = self.deployments[command.execution_id]
        dropped = deployment.ended and deployment.dropped
        self._start(deployment)  # the worker that hands it over runs already, so all are ready
        deployment.ended = False
        self._begin_to_run(deployment)
        try:
            tasklet = deployment.adopt(command, fds)
        except BaseException as error:
            deployment.adopted += 1
            self._fail(deployment, error, None)
            return
        if dropped:  # cancelled meanwhile: all that is left to do is to close it
            self._drop(deployment)
            self._report_end(deployment)
            return
        self._stealing.received()
        self.tasklets = [*self.tasklets, (tasklet, deployment)]
        self._block.words[control.TASKLETS] = len(self.tasklets)

    def _order(self, command: Save | Resolve) -> None:
        deployment = self.deployments.get(command.execution_id)
        if deployment is None or deployment.dropped:
            return
        try:
            deployment.order(command)
        except BaseException as error:
            self._fail(deployment, error, None)
        else:
            if deployment.started and deployment.snapshots is not None and deployment not in self._saving:
                self._saving.append(deployment)
            self._report_snapshots(deployment)

    def _report_snapshots(self, deployment: Deployment) -> None:
        assert deployment.snapshots is not None
        for report in deployment.snapshots.take_reports():
            self._channel.send(report)

    def _connect_endpoint(self, command: EndpointConnection, fds: list[int]) -> None:
        deployment = self.deployments.get(command.execution_id)
        if deployment is not None:
            deployment.endpoints.add_connection(command.endpoint, fds)
        else:  # it has ended
            for fd in fds:
                os.close(fd)

    def _cancel(self, command: Cancel) -> None:
        deployment = self.deployments.get(command.execution_id)
        if deployment is not None and not deployment.ended:
            deployment.services.keeps = command.is_lossy and deployment.snapshots is not None
            self._drop(deployment)
            self._report_end(deployment)

    def _fail_all(self, error: MemoryError) -> None:
        """Fail what runs here or is about to: this process lacks what all of it needs."""
        for deployment in list(self.deployments.values()):
            if not deployment.ended:
                self._fail(deployment, error, None)

    def _fail(self, deployment: Deployment, error: BaseException, tasklet: ProcessorTasklet | None) -> None:
        if not hold_reserve():
            release_reserve()  # to say so takes memory, too
            if issubclass(type(error), SystemError):  # what Python makes of a lack of memory in some places
                error = no_memory()
        vertex, processor, hint = deployment.blame(error, tasklet)
        failure = self._failure_of(deployment.execution_id, error, vertex, processor, hint)
        self._drop(deployment)
        self._channel.send(Failed(deployment.execution_id, failure))
        self._report_end(deployment)

    def _failure_of(
        self, execution_id: int, error: BaseException, vertex: str | None, processor: int, hint: str = ""
    ) -> Failure:
        """Describe an exception; to show and to pickle it is code of the user, which may be interrupted."""

        def described() -> Failure:
            with self._interrupts.around(execution_id):
                return make_failure(error, vertex=vertex, processor_index=processor, worker=self._index, hint=hint)

        def in_short(_: BaseException) -> Failure:
            return Failure("error", vertex, processor, self._index, os.getpid(), name_of(error), hint, [], None)

        try:
            return attempt(described, in_short)
        finally:
            forget_frames(error)

    def _drop(self, deployment: Deployment) -> None:
        """Take the execution's tasklets off the list and close its processors."""
        deployment.dropped = True
        if deployment in self._saving:
            self._saving.remove(deployment)
        self.tasklets = [pair for pair in self.tasklets if pair[1] is not deployment]
        self._block.words[control.TASKLETS] = len(self.tasklets)
        deployment.close_processors(self._interrupts)

    def _report_end(self, deployment: Deployment) -> None:
        if deployment.snapshots is not None and not deployment.dropped:
            self._report_snapshots(deployment)
        deployment.ended = True
        left = [other for other in self.deployments.values() if not other.ended]
        self._collector.policy = strictest(other.policy for other in left)
        self._has_company = any(other.has_carriers for other in left)
        flush_output()
        self._block.words[control.SLAB_BYTES] += deployment.new_slab_bytes()
        finished = not deployment.is_needed and deployment.execution_id not in self._probings
        has_views = False
        if finished:
            self.deployments.pop(deployment.execution_id, None)
            self._services.end(deployment.services, is_followed=False)
            has_views = deployment.release()
            listeners.remove(deployment.execution_id)
        commits = not deployment.dropped and any(True for _ in deployment.commits())
        self._channel.send(Ended(deployment.execution_id, deployment.adopted, finished, has_views, commits))

    def _finish(self, command: Finish) -> None:
        deployment = self.deployments.pop(command.execution_id, None)
        has_views = False
        if deployment is not None:
            if deployment in self._saving:
                self._saving.remove(deployment)
            deployment.close_suppliers(command.error, self._interrupts)
            self._services.end(deployment.services, is_followed=command.is_followed)
            has_views = deployment.release()
        probing = self._probings.pop(command.execution_id, None)
        if probing is not None:
            probing.close(command.error, self._interrupts)
        listeners.remove(command.execution_id)
        self._channel.send(Finished(command.execution_id, has_views))
        self._collector.collect_young()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
