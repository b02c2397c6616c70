"""What a stage with `on_error(send_to=...)` sends to that sink."""

from __future__ import annotations

from typing import Any, NamedTuple


class FailedItem(NamedTuple):
    """An item whose function raised.

    The error is kept as text, so that it can be written and sent on whatever its class is.

    Args:
        item: as the stage got it.
        vertex: name of the stage.
        error: class and text of the exception.
        traceback: lines of the user's code through which the exception came, and the exception.

    Example:
        >>> FailedItem("7a", "parse", "ValueError: invalid literal", "...").error
        'ValueError: invalid literal'
    """

    item: Any
    vertex: str
    error: str
    traceback: str
