"""Turns an exception in a worker into a `Failure` that always travels, and back into what the user sees.

The text keeps the user's frames and drops the engine's; it has at most `MAX_LINES` lines however deep the recursion
or long the message. Source lines are read where the code ran and, for code that exists only in the client (a
notebook's cells), filled in there.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from functools import partial
from signal import Signals

import msgspec

from shmjet.core import JobFailedError, MemberLostError, RestartableError, WorkerLostError
from shmjet.data import code_pickling
from shmjet.data.errors import BatchError, locate
from shmjet.data.sendable_text import sendable
from shmjet.execution.foreign_errors import attempt, is_exception, name_of, notes_of, text_of
from shmjet.execution.messages import Failure, Frame
from shmjet.host.process_limits import NO_PROCESS

MAX_LINES = 25
_MAX_FRAMES = 9
_MAX_TEXT_LINES = 4
_MAX_TEXT = 2000
_ROOM_BYTES = 1 << 20
"""More than it takes to read a source file and to cut it into lines."""
MOST_PICKLED = 16 << 20
"""Bytes of an exception that travels as it is; of a larger one the text does."""
MEMBER_LOST = "member_lost"
"""The kind of the loss of a member, or of the connection to one."""
_LOSSES = ("worker_lost", MEMBER_LOST)
_NOT_THE_USERS = tuple(
    f"{folder}{os.sep}" for name in ("shmjet", "cloudpickle") for folder in sys.modules[name].__path__
)
"""Beginnings of the files of these packages, just as their code names them: other folders may have the same names."""


def make_failure(
    error: BaseException, *, vertex: str | None, processor_index: int, worker: int, hint: str = ""
) -> Failure:
    """Describe an exception that a processor (or its supplier) raised.

    Args:
        vertex: the vertex' name, None when no single vertex is to blame.
        processor_index: the processor's global index, -1 when it was the supplier.
        worker: index of the worker or carrier.
        hint: what the user may do about it.
    """
    if vertex is not None and is_exception(error) and issubclass(type(error), BatchError):
        attempt(lambda: locate(error, f"vertex {vertex!r}"), lambda _: None)
    text = "\n".join([_one_text(error), *_notes(error)])
    return Failure(
        kind="error",
        vertex=vertex,
        processor_index=processor_index,
        worker=worker,
        pid=os.getpid(),
        type_name=name_of(error),
        text=f"{text}\n{hint}" if hint else text,
        frames=attempt(lambda: _user_frames(error), lambda _: []),
        exception=attempt(lambda: _pickled(error), lambda _: None),
        restartable=issubclass(type(error), RestartableError),
    )


def without_exception(failure: Failure) -> Failure:
    """Return a failure as one whose exception cannot be pickled."""
    return msgspec.structs.replace(failure, exception=None)


def member_failed(error: Exception) -> Failure:
    """Describe why a member could not take part, which is none of the user's code.

    Args:
        error: it can be pickled, and read back without user code.
    """
    return Failure("error", None, -1, -1, os.getpid(), name_of(error), _one_text(error), [], _pickled(error))


def _one_text(error: BaseException) -> str:
    text = text_of(error)
    text = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
    lines = text.split("\n")
    if len(lines) > _MAX_TEXT_LINES:
        lines = [*lines[: _MAX_TEXT_LINES - 1], f"… ({len(lines) - _MAX_TEXT_LINES + 1} more lines)"]
    return "\n".join(lines)


def _notes(error: BaseException) -> list[str]:
    return [note[:_MAX_TEXT] for note in notes_of(error)][:_MAX_TEXT_LINES]


def _user_frames(error: BaseException) -> list[Frame]:
    """Return the frames that are not the engine's, the innermost last; of many, the first and the last ones."""
    frames = []
    has_lines = not issubclass(type(error), MemoryError) or _has_room()
    for summary in traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False):
        file = summary.filename
        if file.startswith(_NOT_THE_USERS):
            continue
        line = sendable((summary.line or "").strip()) if has_lines else ""
        frames.append(Frame(sendable(file), summary.lineno or 0, sendable(summary.name), line))
    if len(frames) > _MAX_FRAMES:
        frames = [*frames[:2], *frames[-(_MAX_FRAMES - 2) :]]
    return frames


def _has_room() -> bool:
    """Say whether source files can be read: without memory Python 3.11 may read one for ever."""
    try:
        bytearray(_ROOM_BYTES)
    except MemoryError:
        return False
    return True


def _pickled(error: BaseException) -> bytes | None:
    """Pickle the exception, without its traceback, only if it can be read back and is not too large."""
    for dumps in (partial(pickle.dumps, protocol=5), code_pickling.dumps):
        data: bytes | None = attempt(partial(_checked_pickle, dumps, error), lambda _: None)
        if data is not None:
            return data if len(data) <= MOST_PICKLED else None
    return None


def _checked_pickle(dumps: Callable[..., bytes], error: BaseException) -> bytes | None:
    data = dumps(error)
    return data if is_exception(pickle.loads(data)) else None


class RemoteError(Exception):
    """Stands for a worker's exception that could not be pickled; has its type's name and text."""


def is_loss(failure: Failure | None) -> bool:
    """Say whether a failure is the loss of a process."""
    return failure is not None and failure.kind in _LOSSES


def worker_lost(
    *,
    worker: int,
    pid: int,
    signal: int,
    status: int | None,
    vertices: list[str],
    carrier: bool,
    because: str | None = None,
    last_words: str | None = None,
    end: str | None = None,
) -> Failure:
    """Describe the death of a worker or carrier process.

    Args:
        pid: 0 when it could not be forked.
        signal: number of the signal that killed it, 0 when it exited with `status`.
        status: None where it is unknown.
        vertices: of which it ran processors for this execution.
        because: why its member killed it, if it was the member.
        last_words: why it exited, if it could tell.
        end: how it ended, where its status is unknown; `signal` and `status` mean nothing then.
    """
    what = f"{'carrier' if carrier else f'worker {worker}'}{f' (pid {pid})' if pid > 0 else ''}"
    if pid <= 0:
        how = f"could not be forked; its fork server may be stopped, or see {NO_PROCESS}"
    elif signal:
        how = f"was killed by {_signal_name(signal)}"
    elif status is None:
        how = "has ended, and its fork server has not said how"
    else:
        how = f"exited with status {status}"
    ran = ", ".join(repr(name) for name in vertices) or "no vertex"
    hint = ""
    if because is not None:
        hint = f" by its member, because {because}"
    elif last_words is not None:
        hint = f": {last_words}"
    elif signal == 9:
        hint = " (the kernel's out-of-memory killer does that too: see `dmesg`)"
    if end is not None:
        how, hint, signal = end, "", 0
    return Failure(
        kind="worker_lost",
        vertex=vertices[0] if len(vertices) == 1 else None,
        processor_index=-1,
        worker=worker,
        pid=pid,
        type_name="WorkerLostError",
        text=f"{what} {how}{hint}; {'it ran' if pid > 0 else 'it was to run'} {ran}",
        frames=[],
        exception=None,
        signal=signal,
        vertices=vertices,
    )


def member_lost(text: str, *, member: str) -> Failure:
    """Describe the loss of a member that took part.

    Args:
        text: how it was lost; names it.
        member: its address.
    """
    return Failure(MEMBER_LOST, None, -1, -1, 0, "MemberLostError", text, [], None, member=member)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return Signals(number).name
    return f"signal {number}"


def to_exception(failure: Failure, *, member: str, job: str) -> BaseException:
    """Make what `Execution.result()` raises.

    Args:
        member: address of the member on which it happened.
        job: how the job is called in the text.
    """
    in_vain = f"; {_in_vain(failure)}" if failure.attempts else ""
    if failure.kind == "worker_lost":
        on = f" (member {failure.member})" if failure.member else ""
        return WorkerLostError(
            f"job {job} failed: {failure.text}{on}{in_vain}",
            pid=failure.pid or None,
            signal=failure.signal or None,
            vertices=failure.vertices,
        )
    if failure.kind == MEMBER_LOST:
        return MemberLostError(f"job {job} failed: {failure.text}{in_vain}")
    cause: BaseException | None = None
    if failure.exception is not None:
        loaded = attempt(partial(pickle.loads, failure.exception), lambda _: None)
        cause = loaded if is_exception(loaded) else None
    if cause is None:
        cause = RemoteError(f"{failure.type_name}: {failure.text}")
    error = JobFailedError(
        failure_text(failure, job),
        vertex=failure.vertex,
        processor_index=failure.processor_index,
        member=failure.member or member,
        cause=cause,
    )
    error.__cause__ = cause
    return error


def failure_text(failure: Failure, job: str) -> str:
    """Return the message of a failed job: where it happened, then the user's own traceback."""
    where = f"job {job} failed"
    if failure.vertex is not None:
        which = f", processor {failure.processor_index}" if failure.processor_index >= 0 else ""
        where += f" in vertex {failure.vertex!r}{which}"
    places = [f"member {failure.member}"] if failure.member else []
    places += [f"worker {failure.worker}"] if failure.worker >= 0 else []
    places += [f"pid {failure.pid}"] if failure.pid > 0 else []
    where += f" ({', '.join(places)})" if places else ""
    lines = [f"{where}: {failure.type_name}"]
    if failure.attempts:
        lines.append(f"{_in_vain(failure).capitalize()}.")
    last = f"{failure.type_name}: {failure.text}" if failure.text else failure.type_name
    if failure.frames:
        lines.append("Traceback of the user's code (most recent call last):")
        for frame in failure.frames:
            lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
            source = frame.source or linecache.getline(frame.file, frame.line).strip()
            if source:
                lines.append(f"    {source[:200]}")
    lines += last.split("\n")
    return "\n".join(lines[:MAX_LINES])


def _in_vain(failure: Failure) -> str:
    return f"it was attempt {failure.attempts} without a new snapshot, and the last one"
