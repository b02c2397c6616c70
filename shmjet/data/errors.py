"""Every error that shmjet raises on purpose, under one root.

An error says what is wrong by name, which value was found and what to do about it. The classes here carry what a
program may want to look at as attributes and survive pickling, because they travel from workers to clients.
This module knows nothing of what raises them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


class ShmjetError(Exception):
    """The root of all errors that shmjet raises on purpose.

    Example:
        >>> try:
        ...     raise ShmjetError("vertex 'a' ...")
        ... except ShmjetError as error:
        ...     print(error)
        vertex 'a' ...
    """


class BatchError(ShmjetError):
    """The columns of a batch do not fit together, or an operation does not fit a column.

    The text names the column (and, from a processor, the vertex), what was expected and what was found.

    Example:
        >>> Batch({"a": [1, 2], "b": [1]})                    # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.BatchError: column 'b' has 1 rows, 'a' has 2
    """


def locate(error: BaseException, where: str) -> None:
    """Put where it happened in front of the text of a `BatchError`: who raises one knows columns, not vertices.

    Args:
        error: any; only a `BatchError` is changed, and only once.
        where: the vertex or the edge.

    Example:
        >>> error = BatchError("column 'v' has 3 rows")
        >>> locate(error, "vertex 'double'")
        >>> error
        BatchError("vertex 'double': column 'v' has 3 rows")
    """
    if isinstance(error, BatchError) and not str(error).startswith(f"{where}: "):
        error.args = (f"{where}: {error}",)


class ConfigError(ShmjetError):
    """A setting has a wrong name, type or range; the text names it, where it came from and what is allowed.

    Example:
        >>> JetConfig(cores=0)                                # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.ConfigError: JetConfig.cores must be at least 1, got 0
    """


class DagError(ShmjetError, ValueError):
    """A DAG, a vertex or an edge is not well-formed; the text names the vertex, the ordinal and the remedy.

    Example:
        >>> dag.edge(between(a, b)).edge(between(b, a)).validate()                         # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.DagError: the DAG has a cycle: a -> b -> a; take one of these edges out
    """


class PlanError(ShmjetError, ValueError):
    """A pipeline cannot be planned; the text names the stages, and for streams that disagree both their values.

    Example:
        >>> Pipeline().to_dag()                               # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.PlanError: the pipeline is empty; begin with read_from(source)
    """


class PartitionCountError(ConfigError, PlanError):
    """A configured partition count that no plan can have: wrong as a setting, and as a plan."""


class ProcessorError(ShmjetError):
    """A processor or a supplier broke its contract; the text names it, the callback and what was expected.

    Example:
        >>> Processor().process(0, inbox)                     # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.ProcessorError: Processor got items on inbound ordinal 0 but does not implement ...
    """


class OutboxError(ProcessorError):
    """An offer broke the outbox's rules: after a refusal, leave the callback and offer the same item again."""


class PartitionError(ProcessorError, ValueError):
    """A custom partitioner returned something that is not a partition; the text names edge, key and value.

    Example:
        >>> try:                                                                        # doctest: +SKIP
        ...     job.run()
        ... except JobFailedError as failed:
        ...     print(isinstance(failed.cause, PartitionError))
        True
    """


class WatermarkError(ProcessorError):
    """A watermark went backwards, or came from an input that had ended."""


class RestartableError(ShmjetError):
    """Raised by a processor to have the whole job restarted instead of failed.

    A job with a guarantee goes on from its last snapshot, another one begins anew. The first restart is at once, and
    pauses between further ones grow. The tenth attempt without a new snapshot, after some ten seconds, fails with this
    error.

    Example:
        >>> raise RestartableError("lost the connection to the broker")
        Traceback (most recent call last):
        ...
        shmjet.data.errors.RestartableError: lost the connection to the broker
    """


class AssertionCompletedError(ShmjetError):
    """Ends a job with an endless source whose sink `assert_collected_eventually` has seen what it waits for.

    It is the cause of the `JobFailedError` with which such a job ends, so a test expects it.

    Example:
        >>> try:
        ...     jet.new_job(pipeline).run()                  # doctest: +SKIP
        ... except JobFailedError as error:
        ...     assert isinstance(error.cause, shmjet.testing.AssertionCompletedError)
    """


class AuthenticationError(ShmjetError):
    """The other side has not proved that it knows the secret.

    Example:
        >>> shmjet.new_client(["10.0.0.5:5701"], ClientConfig(secret="old"))            # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.AuthenticationError: 10.0.0.5:5701: refused: the secrets differ
    """


class JobAlreadyExistsError(ShmjetError):
    """A job of the same name has not ended yet; names are those of `JobConfig.name`.

    Example:
        >>> jet.new_job(dag, JobConfig(name="primes")).execute()                        # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.JobAlreadyExistsError: a job named 'primes' is running (id 7f0e1d2c3b4a5968); ...
    """


class JobStateError(ShmjetError):
    """What was asked of a job does not go with its status, such as resuming a job that runs.

    Example:
        >>> job.resume()                                                                # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.JobStateError: job 'primes' is RUNNING; only a suspended job can be resumed
    """


class JobNotFoundError(ShmjetError):
    """No job has this name or id.

    Example:
        >>> jet.named_job("weekly").run()                                               # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.JobNotFoundError: no job 'weekly' is in this member's configuration; there is 'nightly'
    """


class MemberLostError(ShmjetError):
    """A member of the cluster is gone.

    Example:
        >>> jet.new_job(dag, JobConfig(auto_scaling=False)).run()                       # doctest: +SKIP
        Traceback (most recent call last):
        ...
        shmjet.data.errors.MemberLostError: member 10.0.0.5:5701 was lost while the job ran
    """


def _rebuild(
    cls: Callable[[str], BaseException], text: str, attributes: dict[str, Any], cause: BaseException | None
) -> BaseException:
    """Make an error again from its pickled parts, attributes and cause included."""
    error = cls(text)
    error.__dict__.update(attributes)
    error.__cause__ = cause
    return error


class JobFailedError(ShmjetError):
    """A job ended with an error.

    Args:
        message: what went wrong; it ends with the user function's own traceback.
        vertex: name of the vertex that failed first, None when no vertex is to blame.
        processor_index: global index of the processor that failed first.
        member: address of the member on which it ran.
        cause: the first error itself; it is `__cause__` too.

    Example:
        >>> try:
        ...     job.run()                                    # doctest: +SKIP
        ... except JobFailedError as error:
        ...     print(error.vertex, error.processor_index)
    """

    def __init__(
        self,
        message: str,
        *,
        vertex: str | None = None,
        processor_index: int | None = None,
        member: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.vertex = vertex
        self.processor_index = processor_index
        self.member = member
        self.cause = cause
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__, self.__cause__)


class WorkerLostError(ShmjetError):
    """A worker process, or the carrier of one processor, ended without being asked to.

    Args:
        message: names the worker, its pid, the signal and the vertices that it ran.
        pid: process id of the lost process.
        signal: number of the signal that ended it, None when it exited by itself.
        vertices: names of the vertices of which it ran processors.

    Example:
        >>> try:
        ...     job.run()                                    # doctest: +SKIP
        ... except WorkerLostError as error:
        ...     print(error.signal, error.vertices)
    """

    def __init__(
        self, message: str, *, pid: int | None = None, signal: int | None = None, vertices: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.pid = pid
        self.signal = signal
        self.vertices = tuple(vertices)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__, self.__cause__)


def no_column(name: object, there: Iterable[str]) -> BatchError:
    """Return the error for a column that a batch lacks.

    Example:
        >>> str(no_column("carier", ["carrier", "dest"]))
        "there is no column 'carier'; there are ['carrier', 'dest']; did you mean 'carrier'?"
    """
    from shmjet.data.suggestions import meant

    names = list(there)
    return BatchError(f"there is no column {name!r}; there are {names}{meant(name, names)}")
