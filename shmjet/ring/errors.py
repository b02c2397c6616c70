"""The root of shmjet's errors, and those that this floor raises; `shmjet.core.errors` has the others."""

from __future__ import annotations


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
        shmjet.ring.errors.BatchError: column 'b' has 1 rows, 'a' has 2
    """
