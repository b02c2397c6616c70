"""Changes of several portions where the disk takes none: all are made in memory before the error is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shmjet.grid.errors import NotOnDiskError

Result = TypeVar("Result")


class DiskErrors:
    """Keeps the last `NotOnDiskError` of some changes until all of them have been made.

    Each of these changes is in memory, so what belongs to it has to be done as well. Not before `report` may the caller
    learn that they are not on disk.
    """

    def __init__(self) -> None:
        self._last: NotOnDiskError | None = None

    def result_of(self, change: Callable[[], Result]) -> Result:
        """Make a change and return its result, also where it is not on disk."""
        try:
            return change()
        except NotOnDiskError as error:
            self._last = error
            result: Result = error.result
            return result

    def report(self, result: Any = None) -> None:
        """Raise the error, if there was one, with what the whole would have returned."""
        error, self._last = self._last, None
        if error is not None:
            error.result = result
            raise error
