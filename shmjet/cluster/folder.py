"""An instance's folder: its socket and its maps, private, and gone with the member however it ends.

The member holds a lock on a file in it. A janitor (a shell of a few hundred kilobytes) waits for the end of a pipe
that only the member holds and removes the folder then; whatever a janitor missed is swept by the next start, which
removes folders that nobody locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path

_LOCK = "lock"
_SETTLING_S = 60.0
_MIN_SHM = 32 << 20
_JANITOR = 'trap "" HUP INT TERM; read -r _; rm -rf -- "$0"'


def base_folder() -> Path:
    """Return where instances keep their folders: /dev/shm, or the temporary folder where that is missing or tiny."""
    shm = Path("/dev/shm")
    with contextlib.suppress(OSError):
        stat = os.statvfs(shm)
        if os.access(shm, os.W_OK | os.X_OK) and stat.f_bavail * stat.f_frsize >= _MIN_SHM:
            return shm
    import tempfile  # needed on few hosts, and not cheap

    return Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"shmjet-{os.getuid()}-"


def running_folders() -> list[Path]:
    """Return the folders of all members of this user that run, the oldest first."""
    import tempfile

    bases = dict.fromkeys((Path("/dev/shm"), Path(tempfile.gettempdir())))
    found = [folder for base in bases for folder in base.glob(_prefix() + "*") if is_locked(folder)]
    return sorted(found, key=lambda folder: folder.stat().st_mtime)


def is_locked(folder: Path) -> bool:
    """Say whether a member holds the lock of its folder, which it does as long as it lives."""
    try:
        with (folder / _LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def sweep(base: Path) -> list[Path]:
    """Remove the folders of members that are gone; return them."""
    swept = []
    for folder in base.glob(_prefix() + "*"):
        lock = folder / _LOCK
        try:
            if not lock.exists():
                gone = time.time() - folder.stat().st_mtime > _SETTLING_S
            else:
                with lock.open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    gone = True
        except OSError:  # locked, or being removed by another
            continue
        if gone:
            _remove_tree(folder)
            swept.append(folder)
    return swept


def _remove_tree(folder: Path) -> None:
    import shutil  # with its archive formats it takes longer to import than the rest of this module: not at the start

    shutil.rmtree(folder, ignore_errors=True)


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
            self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:  # a sweep was faster and is removing it
                os.close(self._lock)
        reader, self._lifeline = os.pipe()
        self._janitor = subprocess.Popen(
            ["/bin/sh", "-c", _JANITOR, str(self.path)],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        os.close(reader)

    def remove(self) -> None:
        """Remove the folder and let the janitor go."""
        _remove_tree(self.path)
        os.close(self._lifeline)
        try:
            self._janitor.wait(2)
        except subprocess.TimeoutExpired:
            self._janitor.kill()
            self._janitor.wait()
        os.close(self._lock)
