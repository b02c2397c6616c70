"""Facts of this machine other than cores and control groups: shared memory, Java, Spark. Reads only; checks nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from shmjet.host.kernel_files import Root, read_text


def shared_memory(root: Root = "/") -> tuple[int, int] | None:
    """Return (size, free) of /dev/shm in bytes, None when there is none or it cannot be written."""
    folder = Path(root, "dev/shm")
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def clock_source(root: Root = "/") -> str:
    """Return the name of the clock that the kernel uses; empty when it does not tell."""
    return read_text(str(Path(root, "sys/devices/system/clocksource/clocksource0/current_clocksource")))


def java_version() -> tuple[str, int] | None:
    """Return what `java -version` says and its major number, None when there is no java that works."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', answer.stderr + answer.stdout)
    return (found[1], int(found[2])) if found else None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
