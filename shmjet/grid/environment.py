"""One LMDB environment of a store, as one process sees it.

LMDB gives what parallel writers and readers of other processes need: readers never wait, a writer holds one robust
lock for its transaction, and a killed process leaves either all of a transaction or nothing. It asks for discipline in
return, which is kept here so that no other code has to know: an environment is opened once per process and after the
fork, write transactions are short, read transactions end before anything is decoded, WRITEMAP is never used (a full
/dev/shm is an error of a write then, not a SIGBUS), and readers that died are cleared away.

This module does not know what maps, lists or entries are.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import lmdb

from shmjet.grid.commit_counters import COMMITTED, NUMBERS, WRITING
from shmjet.grid.errors import GridError, GridFullError, NotOnDiskError
from shmjet.host.process_limits import lack_text

Result = TypeVar("Result")
if TYPE_CHECKING:
    Transaction: TypeAlias = lmdb.Transaction[bytes]
else:
    Transaction = lmdb.Transaction

MAX_READERS = 1024
"""Read transactions open at the same time, over all processes; each takes 64 bytes of the lock file."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # EIO: LMDB could write a part only


class Follower(Protocol):
    """Brings what transactions have noted elsewhere, to the disk say."""

    def noted(self, txn: Transaction) -> int:
        """Return the number of the last thing that has been noted, as a transaction sees it."""

    def committed(self, words: memoryview, number: int) -> None:
        """Take that what has been noted up to a number is committed."""


class Environment:
    """An LMDB environment; safe to share between the threads of a process, useless after a fork.

    Args:
        folder: where its two files are, or will be.
        map_size: most bytes that it may hold.
        announced: the numbers of `CommitCounters.of`; that of a transaction is put there before it commits.
    """

    def __init__(self, folder: Path, map_size: int, announced: memoryview) -> None:
        self.announced = announced
        self.folder = folder
        self.map_size = map_size
        self.follower: Follower | None = None
        """Told of each transaction that has noted something, when it holds no lock any more."""
        self._writing = threading.Lock()
        self._env: lmdb.Environment | None = None
        self._unusable: str | None = None

    def begin(self) -> Transaction:
        """Open a read transaction; end it before doing anything slow.

        Raises:
            GridError: the environment is closed, was opened before a fork, or all reader slots are taken.
        """
        try:
            return self._opened().begin()
        except lmdb.ReadersFullError as error:
            self._opened().reader_check()
            raise GridError(f"{MAX_READERS} readers use the store in {self.folder} at the same time") from error

    def write(self, work: Callable[[Transaction], Result], what: str) -> Result:
        """Run `work` in a write transaction and commit it: all of it happens, or none of it.

        `work` must take a few milliseconds at most, because writers of this environment in other processes wait for
        it, and it may be called twice. `what` names the thing being written in errors.

        Raises:
            GridFullError: there is no room.
        """
        result, number = self._write(work, what)
        if number and self.follower is not None:
            try:
                self.follower.committed(self.announced, number)
            except NotOnDiskError as error:
                error.result = result
                raise
        return result

    def _write(self, work: Callable[[Transaction], Result], what: str) -> tuple[Result, int]:
        env = self._opened()
        with self._writing:
            try:
                return self._attempt(env, work)
            except lmdb.MapFullError:
                env.reader_check()  # pages that only a dead reader still holds can be used again
            except lmdb.Error as error:
                raise self._explained(error, what) from error
            try:
                return self._attempt(env, work)
            except lmdb.MapFullError as error:
                raise GridFullError(
                    f"no room for {what}: environment {self.folder} is at its limit of {self.map_size} bytes "
                    "(map_size); clear or destroy what is not needed"
                ) from error
            except lmdb.Error as error:
                raise self._explained(error, what) from error

    @property
    def is_busy(self) -> bool:
        """Whether a writer would probably have to wait for another one."""
        return self._writing.locked() or self.announced[WRITING] != 0

    def entries(self, txn: Transaction) -> int:
        """Return how many keys the environment has, as `txn` sees it. Costs the same for any number."""
        return txn.stat(self._data)["entries"]

    def size(self) -> int:
        """Return how many bytes the pages take that are in use. Costs the same for any number."""
        with self.begin() as txn:
            found = txn.stat(self._data)
        return found["psize"] * (found["branch_pages"] + found["leaf_pages"] + found["overflow_pages"])

    def copy_to(self, fd: int) -> None:
        """Write a copy of all as it is at one moment, without unused pages; writers go on meanwhile.

        Raises:
            OSError: it cannot be written there.
        """
        try:
            self._opened().copyfd(fd, compact=True)
        except lmdb.Error as error:
            raise OSError(error.code or errno.EIO, f"a copy of {self.folder} cannot be written: {error}") from error

    def check_readers(self) -> int:
        """Give back the reader slots of processes that died; returns how many."""
        return self._opened().reader_check()

    def open(self) -> None:
        """Open it now; otherwise the first use does. Makes the files when there are none.

        Raises:
            GridError: it cannot be opened.
        """
        self._opened()

    def close(self) -> None:
        """Close it; using it again is a GridError. May be called twice."""
        with self._writing:
            self._unusable = "is closed"
            if self._env is not None:
                self._env.close()
                self._env = None
            self.announced = memoryview(bytearray(8 * NUMBERS)).cast("Q")  # lets go of the mapping

    def forked(self) -> None:
        """Called in the child of a fork: what was opened belongs to the parent."""
        self._unusable = "was opened before this process was forked; open it again after the fork"
        _of_parents.append(self._env)  # closing it here would release the parent's file locks
        self._env = None
        self._writing = threading.Lock()

    def _opened(self) -> lmdb.Environment:
        return self._env if self._env is not None else self._open()

    def _open(self) -> lmdb.Environment:
        with self._writing:
            if self._unusable is not None:
                raise GridError(f"the store in {self.folder} {self._unusable}")
            if self._env is None:
                try:
                    self._env = lmdb.open(
                        str(self.folder),
                        map_size=self.map_size,
                        max_readers=MAX_READERS,
                        max_spare_txns=4,
                        mode=0o600,
                        sync=False,
                        metasync=False,
                        meminit=False,
                    )
                except lmdb.DiskError as error:
                    text = lack_text(OSError(errno.ENOSPC, str(error)))
                    raise GridError(f"cannot open the store in {self.folder}: {text}") from error
                except (lmdb.Error, OSError) as error:
                    if os.strerror(errno.EMFILE) in str(error):  # lmdb's errors have no number
                        text = lack_text(OSError(errno.EMFILE, str(error)))
                        raise GridError(f"cannot open the store in {self.folder}: {text}") from error
                    raise GridError(
                        f"cannot open the store in {self.folder}: {error}; it needs {self.map_size} bytes of address "
                        "space (`ulimit -v`), a folder that is still there, and to be opened once per process"
                    ) from error
                self._data = self._env.open_db()
            return self._env

    def _attempt(self, env: lmdb.Environment, work: Callable[[Transaction], Result]) -> tuple[Result, int]:
        words, follower = self.announced, self.follower
        with env.begin(write=True) as txn:
            words[WRITING] = 1
            try:
                before = 0 if follower is None else follower.noted(txn)
                result = work(txn)
                number = 0 if follower is None else follower.noted(txn)
                words[COMMITTED] = txn.id()
            finally:
                words[WRITING] = 0
        return result, number if number > before else 0

    def _explained(self, error: lmdb.Error, what: str) -> GridError:
        longest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if longest != resource.RLIM_INFINITY and error.code in (errno.EFBIG, errno.EIO):
            return GridFullError(
                f"no room for {what}: this process may write files of {longest} bytes at most (RLIMIT_FSIZE, "
                f"`ulimit -f`), and the store in {self.folder} would be longer ({error})"
            )
        if isinstance(error, lmdb.DiskError) or error.code in _NO_ROOM:
            return GridFullError(
                f"no room for {what}: the file system of {self.folder} is full ({error}); clear or destroy what is "
                "not needed, or give /dev/shm more (`mount -o remount,size=...`, docker's --shm-size)"
            )
        return GridError(f"cannot write {what} into {self.folder}: {error}")


def behind(txn: Transaction, head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what is stored under keys that begin with `head`, without it."""
    with txn.cursor() as cursor:
        if cursor.set_range(head):
            for key, value in cursor.iternext():
                if key[: len(head)] != head:
                    break
                yield key[len(head) :], value


_of_parents: list[lmdb.Environment | None] = []
