"""An instance's folder: its socket and its maps, private, and gone with the member however it ends.

The member holds a lock on a file in it. A janitor (a shell of a few hundred kilobytes) waits for the end of a pipe
that only the member holds and removes the folder then; whatever a janitor missed is swept by the next start, which
removes folders that no process locks.

Every user may write to `/dev/shm`, so a folder counts only if it belongs to this user, and its lock only if it is a
plain file. Nothing is followed, and nothing is opened that could make its reader wait.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from shmjet.data.errors import ConfigError
from shmjet.host.folders import remove_folder, usable_folder

_LOCK = "lock"
_SETTLING_S = 60.0
_MIN_SHM = 32 << 20
_JANITOR = 'trap "" HUP INT TERM; read -r _; rm -rf -- "$0"'


def base_folder() -> Path:
    """Return where instances keep their folders: /dev/shm, or the temporary folder where that is missing or tiny.

    Raises:
        OSError: there is no temporary folder either; the text says where it was looked for.
    """
    shm = Path("/dev/shm")
    with contextlib.suppress(OSError):
        status = os.statvfs(shm)
        if os.access(shm, os.W_OK | os.X_OK) and status.f_bavail * status.f_frsize >= _MIN_SHM:
            return shm
    return _temporary_folder()


def _temporary_folder() -> Path:
    import tempfile  # needed on few hosts, and not cheap

    return Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"shmjet-{os.geteuid()}-"


def own_folders(base: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the instances' folders that belong to this user; of others nothing is even opened."""
    prefix = _prefix()
    try:
        names = [name for name in os.listdir(base) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        folder = base / name
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                yield folder, status


def running_folders() -> list[Path]:
    """Return the folders of all members of this user that run, the oldest first."""
    bases = [Path("/dev/shm")]
    with contextlib.suppress(OSError):  # there is no temporary folder: then no member is in one
        bases.append(_temporary_folder())
    found = [pair for base in dict.fromkeys(bases) for pair in own_folders(base) if is_locked(pair[0])]
    return [folder for folder, _ in sorted(found, key=lambda pair: pair[1].st_mtime)]


def _open_lock(folder: Path) -> int:
    """Open the file with the lock. Raises OSError where there is none, or where it is not a plain file of ours."""
    fd = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(f"{folder / _LOCK} is not a lock of this user")
    return fd


def is_locked(folder: Path) -> bool:
    """Say whether a member holds the lock of its folder, which it does as long as it lives."""
    try:
        fd = _open_lock(folder)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def sweep(base: Path) -> list[Path]:
    """Remove the folders of members that are gone; return them."""
    swept = []
    for folder, status in own_folders(base):
        try:
            fd = _open_lock(folder)
        except FileNotFoundError:
            if time.time() - status.st_mtime > _SETTLING_S:
                remove_folder(folder)
                swept.append(folder)
            continue
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)  # with the lock held, so that no member that is starting takes it meanwhile
            swept.append(folder)
        except OSError:  # locked, or being removed by another
            continue
        finally:
            os.close(fd)
    return swept


def lock_storage(folder: Path) -> tuple[int, ...]:
    """Make the folder of a member's storage, if it is not there, and take its locks for as long as the member lives.

    The folder has one itself, so that another member is refused after the file with the lock was removed. Members of
    the last version, and file systems that do not lock folders, have only that of the file.

    Args:
        folder: of one member.

    Returns:
        descriptors that hold the locks.

    Raises:
        ConfigError: it cannot be made or written to, or another member that lives uses it.
    """
    found: list[int] = []
    with storage_errors(folder):
        usable_folder(folder)
        try:
            found.append(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            fcntl.flock(found[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            _lock_folder(found[1])
        except BaseException as error:
            for fd in found:
                os.close(fd)
            if not isinstance(error, BlockingIOError):
                raise
            text = f"JetConfig.storage: another member uses {str(folder)!r}; give each its own folder"
            raise ConfigError(text) from None
    return tuple(found)


def _lock_folder(fd: int) -> None:
    """Take the lock of a folder where there are such. Raises BlockingIOError where another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # NFS, for one
        return


@contextlib.contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Have errors of files in the storage of a member that starts say which path it was, and what to do.

    Args:
        folder: of the storage.

    Raises:
        ConfigError: in place of an OSError that names a file in it, or the folder.
    """
    try:
        yield
    except OSError as error:
        path = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
        if path != str(folder) and folder not in Path(path).parents and Path(path) not in folder.parents:
            raise
        where = "" if path == str(folder) else f", because of {path}"
        advice = _ADVICE.get(error.errno or 0, "give another folder")
        text = f"JetConfig.storage: the folder {str(folder)!r} cannot be used{where}: {error.strerror}; {advice}"
        raise ConfigError(text) from error


_ADVICE = {
    errno.ENOTDIR: "move that file away, or give another folder",
    errno.ENOSPC: "make room on its disk (see `df` and `df -i`), or give a folder on another one",
    errno.EDQUOT: "make room there for this user (`quota`), or give another folder",
    errno.EROFS: "mount it so that it can be written to (`mount -o remount,rw`), or give another folder",
    errno.EACCES: "let the member's user read and write there (`chown`, `chmod`), or give another folder",
    errno.EPERM: "let the member's user read and write there (`chown`, `chmod`), or give another folder",
}
"""What to do where a storage cannot be used, by the number of the error."""


class InstanceFolder:
    """A member's folder, locked, with its janitor.

    Args:
        base: where to make it.

    Raises:
        OSError: it cannot be made there.
    """

    def __init__(self, base: Path) -> None:
        while True:
            self.path = base / (_prefix() + os.urandom(6).hex())
            self.path.mkdir(mode=0o700)
            try:
                lock = self._take_lock()
                if lock is not None:
                    self._lock = lock
                    self._begin_janitor()
                    return
            except BaseException:
                remove_folder(self.path)
                raise
            remove_folder(self.path)

    def _begin_janitor(self) -> None:
        reader, self._lifeline = os.pipe()
        try:
            self._janitor = subprocess.Popen(
                ["shmjet: janitor", "-c", _JANITOR, str(self.path)],
                executable="/bin/sh",
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            os.close(self._lifeline)
            os.close(self._lock)
            raise OSError(
                error.errno, f"the process that removes {self.path} in the end cannot be started: {error}"
            ) from error
        finally:
            os.close(reader)

    def _take_lock(self) -> int | None:
        """Make the lock and take it; None when a sweep found the folder before that, and is removing it."""
        try:
            fd = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
        os.close(fd)
        return None

    def remove(self) -> None:
        """Remove the folder and let the janitor go."""
        remove_folder(self.path)
        os.close(self._lifeline)
        try:
            self._janitor.wait(2)
        except subprocess.TimeoutExpired:
            self._janitor.kill()
            self._janitor.wait()
        os.close(self._lock)
