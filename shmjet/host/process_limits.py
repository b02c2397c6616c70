"""Which limit keeps a process, a thread, a descriptor or a file from being made, in words."""

from __future__ import annotations

import errno
import resource

NO_PROCESS = "RLIMIT_NPROC (`ulimit -u`) or the pids limit of the container"
"""What bounds the processes and threads of a user."""


def lack_text(error: Exception) -> str:
    """Return an error's text with the limit that is the reason for it, as far as that can be told.

    Args:
        error: from making a process, a thread, a descriptor or a file.
    """
    number = getattr(error, "errno", None)
    is_thread = isinstance(error, RuntimeError) and "thread" in str(error)
    if is_thread or number == errno.EAGAIN:
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        allowed = "no limit of its own" if most == resource.RLIM_INFINITY else f"RLIMIT_NPROC {most}"
        space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if is_thread and space != resource.RLIM_INFINITY:
            return (
                f"{error}; this process has no address space left for a stack (RLIMIT_AS {space}: raise `ulimit -v`), "
                f"or this user has as many processes and threads as it may ({allowed}: raise {NO_PROCESS})"
            )
        return f"{error}; this user has as many processes and threads as it may ({allowed}): raise {NO_PROCESS}"
    if number == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f"{error}; a file of this process may have {most} bytes: raise RLIMIT_FSIZE (`ulimit -f`)"
    if number == errno.ENOSPC:
        return f"{error}; the file system is full, or has no inode left: see `df` and `df -i`"
    if number in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"{error}; this process may have {most} descriptors open: raise RLIMIT_NOFILE (`ulimit -n`)"
    return str(error)
