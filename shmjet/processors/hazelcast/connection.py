"""A processor's connection to a cluster of Hazelcast, and what its failures mean for the job.

Each processor has a client of its own, as it has a process of its own. Calls do not wait for ever: a `Reply` is asked
for a short while at a time, so that barriers, the end and a cancelled job come through. Must not know maps and lists.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.data.errors import ProcessorError, RestartableError, ShmjetError
from shmjet.processors.hazelcast.settings import ClusterSettings

_LAST_WORDS = 20
"""Log records of the client that are kept while it connects."""


class Reply:
    """What is awaited of a cluster: the end of one call or of several that were made together.

    Args:
        futures: of the client; one at least.
    """

    def __init__(self, futures: Sequence[Any]) -> None:
        self._futures = futures
        self._left = len(futures)
        self._lock = threading.Lock()
        self._done = threading.Event()
        for future in futures:
            future.add_done_callback(self._came)

    def _came(self, future: Any) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait; True when all have come."""
        return self._done.wait(seconds)

    def results(self) -> list[Any]:
        """Return what has come. Raises what a call has raised."""
        return [future.result() for future in self._futures]


class Connection:
    """A client of a cluster; made by `connect`.

    Args:
        client: the `hazelcast.HazelcastClient`.
        settings: with which it was made.
        where: vertex and collection, for messages.
        wait: seconds for which one call of the processor waits.
    """

    def __init__(self, client: Any, settings: ClusterSettings, where: str, wait: float) -> None:
        self.client = client
        self.where = where
        self.wait = wait
        self._settings = settings

    @property
    def partition_count(self) -> int:
        """How many partitions the cluster has."""
        return int(self.client.partition_service.get_partition_count())

    def close(self) -> None:
        """End the client."""
        self.client.shutdown()

    def failure(self, error: BaseException) -> ShmjetError:
        """Return what fails the job after a call has raised; a `RestartableError` where the cluster is not there."""
        from hazelcast import errors

        if isinstance(error, ShmjetError):
            return error
        not_there = errors.HazelcastClientNotActiveError, errors.TargetDisconnectedError, errors.OperationTimeoutError
        if isinstance(error, (*not_there, OSError)):
            settings = self._settings
            return RestartableError(
                f"{self.where}: lost cluster {settings.cluster_name!r} ({settings.addresses}) and did not find it "
                f"again within {settings.connect_timeout:g} s (option cluster_connect_timeout): {_text(error)}"
            )
        if isinstance(error, errors.HazelcastSerializationError):
            return ProcessorError(
                f"{self.where}: the client cannot read what another has written: {_text(error)}. Give it "
                "portable_factories, data_serializable_factories, compact_serializers or custom_serializers in config"
            )
        return ProcessorError(f"{self.where}: {_text(error)}")


def connect(context: ProcessorContext, settings: ClusterSettings, what: str) -> Connection:
    """Connect to a cluster; wait for that.

    The client is made in a thread that takes no signals, and so do the threads that it starts: they are for the main
    thread, which can be interrupted while it waits.

    Args:
        context: of the processor.
        settings: how to reach it.
        what: the collection, for messages: "remote map 'orders'".

    Raises:
        ProcessorError: there is no member, or it refuses the client.
        ModuleNotFoundError: the client is not installed where the processor runs.
    """
    where = f"vertex {context.vertex_name!r}: {what}"
    try:
        import hazelcast
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{where}: this host lacks the package hazelcast-python-client: pip install hazelcast-python-client",
            name="hazelcast",
        ) from None
    attempt = _Attempt(lambda: hazelcast.HazelcastClient(settings.given, **settings.options))
    try:
        client = attempt.client()
    except Exception as error:
        raise ProcessorError(
            f"{where}: cannot connect to cluster {settings.cluster_name!r} at {settings.addresses} within "
            f"{settings.connect_timeout:g} s: {attempt.reason or _text(error)}"
        ) from None
    return Connection(client, settings, where, policy_in(context).blocking_ns / 1e9)


class _Attempt:
    """Makes a client in a thread. The client's log says why it does not connect; what it raises does not."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._is_left = False
        self._made: Any = None
        self._error: BaseException | None = None
        self.reason = ""
        self._ended = threading.Event()

    def client(self) -> Any:
        """Return the client. Raises what making it has raised."""
        logger, words = logging.getLogger("hazelcast"), _Words()
        logger.addHandler(words)
        try:
            threading.Thread(target=self._run, name="shmjet-hazelcast-connect", daemon=True).start()
            self._ended.wait()
        finally:
            logger.removeHandler(words)
            self._leave()
        if self._error is not None:
            self.reason = words.reason()
            raise self._error
        made, self._made = self._made, None
        return made

    def _leave(self) -> None:
        """Have a client that comes too late end at once: the processor was interrupted."""
        with self._lock:
            self._is_left = not self._ended.is_set()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        made = None
        try:
            made = self._make()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._made = made
            self._ended.set()
            is_late = self._is_left
        if is_late and made is not None:
            made.shutdown()


class _Words(logging.Handler):
    """Keeps what was logged last."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self._kept = [*self._kept[1 - _LAST_WORDS :], record]

    def reason(self) -> str:
        """Return the last one, with the error that it tells."""
        told = [record for record in self._kept if record.exc_info and record.exc_info[1] is not None] or self._kept
        if not told:
            return ""
        last = told[-1]
        error = last.exc_info[1] if last.exc_info else None
        return _text(error) if error is not None else last.getMessage()


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
