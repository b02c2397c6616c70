"""`JetInstance`: a cluster as one process sees and uses it, by the member that it started or over the network."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shmjet.cluster.client.callback_runner import CallbackRunner
from shmjet.cluster.client.client_ties import InstanceTies
from shmjet.cluster.client.connection import CLOSED, Connection
from shmjet.cluster.client.grid_access import GridAccess
from shmjet.cluster.client.job import Job
from shmjet.cluster.client.jobs import Jobs, Planned
from shmjet.cluster.client.log_levels import levels
from shmjet.cluster.client.logs import LogSink
from shmjet.cluster.client.members import Cluster
from shmjet.cluster.client.observable import Observable, Observers
from shmjet.cluster.client.snapshot import Snapshot
from shmjet.cluster.observable_messages import Observed
from shmjet.cluster.protocol import CoordinatorLost, Logged, MembersAre, News, WatchAgain
from shmjet.core import DAG, JetConfig, JobConfig, MemberLostError, ShmjetError
from shmjet.core.checks import check_observable_name

if TYPE_CHECKING:
    from shmjet.cluster.client.backend import Backend
    from shmjet.grid import IList, IMap


class JetInstance:
    """A running cluster and the way to use it; made by `new_instance`, with a member of its own, or by `new_client`.

    All methods may be called from any thread. Leaving the `with` block, `shutdown` and the end of the process that
    made it end the member that it started: alone, jobs that still run are cancelled, maps and lists are gone; in a
    cluster the others go on. A client only goes away.

    Example:
        >>> with shmjet.new_instance() as jet:               # doctest: +SKIP
        ...     jet.new_job(dag).run()
        ...     print(dict(jet.get_map("counts")))
    """

    def __init__(self, config: JetConfig, home: Backend) -> None:
        self._config = config
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._lost = False
        self._backend = home
        self._callbacks = CallbackRunner()
        self._maps = GridAccess(home.grid_folder, lambda make: self._connection.ask(make), home.check, home.dial)
        self._observers = Observers(
            lambda make: self._connection.ask(make), lambda make: self._connection.post(make), lambda: home.address
        )
        self._logs = home.logs()
        self._sink = LogSink(levels()[0]) if self._logs is None else self._logs.sink
        self._jobs = Jobs(
            config,
            home,
            lambda: self._connection,
            self._callbacks,
            InstanceTies(home, self._maps, self._observers).of,
            self._drain_logs,
        )
        self._connection = Connection(
            home.endpoint, self._news, self._again, self._member_lost, self._jobs.status_poller.all
        )
        _open.add(self)
        atexit.register(self._at_exit)

    @property
    def config(self) -> JetConfig:
        """The settings that the instance was started with."""
        return self._config

    @property
    def folder(self) -> Path:
        """Where its member's socket and maps are; for an `Observer`.

        Raises:
            ShmjetError: it has no member of its own, but is a client of others.
        """
        return self._backend.own_folder()

    @property
    def cluster(self) -> Cluster:
        """The cluster: one member, unless it joined others."""
        return Cluster(self._connection, self._backend.has_own_member, self._backend.learn)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def new_job(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Make a job; nothing runs before `execute` or `run`.

        Args:
            dag: what to run, a DAG or a pipeline; later changes of it do not matter. Or a job that was unpickled.
            config: how to run it; later changes of it do not matter either. By default that of an unpickled job.

        Raises:
            DagError: the DAG is not valid, or empty.
            PlanError: the pipeline cannot be planned.
            ConfigError: the config is none, or asks for what this version does not have, or an edge for a compression
                that is not installed.
            TypeError: something in it cannot be pickled; the text names the vertex.
        """
        return self._jobs.new_job(dag, config)

    def new_job_if_absent(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Return the job of the config's name that runs or is suspended, or make it as `new_job` does.

        `execute` and `run` of what this returns join that job, too, if another client has started it in the meantime:
        several clients may do the same, and one of them starts the job.

        Args:
            dag: what to run if there is no such job; it is not compared with what runs.
            config: how, with the name.

        Raises:
            MemberLostError: the member is gone.
            DagError, PlanError, ConfigError, TypeError: as `new_job`.

        Example:
            >>> jet.new_job_if_absent(pipeline, JobConfig(name="clicks")).execute()          # doctest: +SKIP
        """
        return self._jobs.new_job_if_absent(dag, config)

    def named_job(self, name: str) -> Job:
        """Return a job of the cluster's own configuration (`JetConfig.jobs`); it is made there when it is executed.

        Args:
            name: that the members' configuration gives it; it is the job's name, too.

        Raises:
            ConfigError: the name is not a string.

        Example:
            >>> jet.named_job("nightly").run()               # doctest: +SKIP
        """
        return self._jobs.named_job(name)

    def jobs(self) -> list[Job]:
        """Return all jobs that have been executed, the oldest first.

        Raises:
            MemberLostError: the member is gone.
        """
        return self._jobs.all()

    def job(self, name: str | None = None, id: str | None = None) -> Job | None:  # noqa: A002
        """Return a job, or None when there is none.

        Args:
            name: its name; a running job is preferred, then the latest.
            id: its id, 16 hexadecimal digits.

        Raises:
            TypeError: neither is given.
            MemberLostError: the member is gone.
        """
        if name is None and id is None:
            raise TypeError("job() takes the name of a job, or its id; all jobs: jobs()")
        return self._jobs.find(name, id)

    def snapshots(self) -> list[Snapshot]:
        """Return the exported snapshots of all jobs, the oldest first (`Job.export_snapshot`).

        Raises:
            MemberLostError: the member is gone.
        """
        return self._jobs.control.snapshots()

    # -- maps and lists -----------------------------------------------------------------------------------------

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same map, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._maps.open().get_map(name)

    def get_list(self, name: str) -> IList[Any]:
        """Return the list of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same list, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._maps.open().get_list(name)

    def get_observable(self, name: str) -> Observable[Any]:
        """Return the observable of that name, to which jobs write with `sinks.observable(name)`.

        Args:
            name: the same name gives the same observable, for every client of the cluster.

        Raises:
            TypeError: `name` is not a string of 1 to 1,024 characters.

        Example:
            >>> for price in jet.get_observable("prices"):       # doctest: +SKIP
            ...     print(price)
        """
        return Observable(check_observable_name("get_observable", name), self._observers)

    # -- news ---------------------------------------------------------------------------------------------------

    def _drain_logs(self) -> None:
        if self._logs is not None:
            self._logs.drain()

    def _news(self, news: News) -> None:
        if isinstance(news, Logged):
            self._sink.take(news.records, news.member, news.dropped)
            return
        if isinstance(news, CoordinatorLost):
            self._jobs.disrupted()
            self._maps.forget()
            self._jobs.fail_pending(news.text)
            self._observers.subscriptions.again()
            return
        if isinstance(news, Observed):
            self._observers.take(news)
            return
        if isinstance(news, WatchAgain):
            self._again()
            return
        if isinstance(news, MembersAre):
            self._backend.learn(news.addresses)
            return
        self._jobs.take(news)

    def _again(self) -> None:
        """Ask the member that we are connected to now about everything that has not ended; we may have missed it."""
        self._jobs.disrupted()
        self._maps.forget()
        self._jobs.status_poller.all()
        self._observers.subscriptions.again()

    def _member_lost(self) -> None:
        self._lost = True
        self._jobs.member_lost()
        error = ShmjetError(CLOSED) if self._closed else MemberLostError(self._backend.endpoint.gone)
        self._observers.subscriptions.close(error)

    # -- end ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the instance; may be called twice.

        The member that it started leaves its cluster and ends with all its processes; alone, it cancels what runs and
        removes its maps. A client closes its connection.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.close()
            self._maps.refuse()
        _open.discard(self)
        atexit.unregister(self._at_exit)
        if os.getpid() != self._pid:  # a forked child's copy: the instance is the parent's
            return
        self._maps.end_listeners()
        self._backend.begin_end(self._connection)
        self._maps.close()
        self._observers.close(ShmjetError(CLOSED))
        self._connection.close()
        self._callbacks.close()
        self._backend.end()
        if self._logs is not None:
            self._logs.close()

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.shutdown()

    def __enter__(self) -> JetInstance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def _repr_html_(self) -> str:
        """Show members and jobs, in a notebook."""
        from shmjet.cluster.client.notebook import instance_html

        return instance_html(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._lost else self._backend.name
        return f"<JetInstance {self._config.cluster_name!r} {state}>"


_open: weakref.WeakSet[JetInstance] = weakref.WeakSet()


def open_instances() -> list[JetInstance]:
    """Return the instances that this process has started and not shut down."""
    return [instance for instance in list(_open) if instance._pid == os.getpid() and not instance._lost]
