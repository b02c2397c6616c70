"""Folders of column files between an instance, or a task, and Spark: where they are, and when they go.

A folder is private, and gone when this process is, however that ends. Must not know files or frames.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shmjet.cluster.folder import InstanceFolder, base_folder, sweep
from shmjet.data.errors import ConfigError


def new_area(spark: Any, folder: str | os.PathLike[str] | None) -> InstanceFolder:
    """Return a fresh folder that this process and Spark's executors can reach.

    Args:
        spark: the session; when its executors run on this host only, `/dev/shm` is the place, or the temporary folder.
        folder: where to make it instead: on storage that all hosts have.

    Raises:
        ConfigError: there may be executors on other hosts, and no folder was named.
        OSError: it cannot be made.
    """
    if folder is None:
        check_local(spark)
        base = base_folder()
    else:
        base = Path(folder).absolute()
        base.mkdir(parents=True, exist_ok=True)
    sweep(base)
    return InstanceFolder(base)


def check_local(spark: Any) -> None:
    """Check that all executors run on this host.

    Raises:
        ConfigError: they may not.
    """
    master = str(spark.sparkContext.master)
    if not master.startswith("local"):
        raise ConfigError(
            f"Spark's master is {master!r}, so its executors may run on other hosts, which cannot read this host's "
            "memory; say folder=... with a folder that all of them have"
        )
