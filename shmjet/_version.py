"""Which version of shmjet this is. Below all floors, and imports nothing: `shmjet --version` has to answer at once."""

from __future__ import annotations


def version() -> str:
    """Look the version up; slow, as it takes half the time of starting an interpreter to import what knows it."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("shmjet")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.1.0"
