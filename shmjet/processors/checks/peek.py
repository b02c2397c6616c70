"""The step that logs the items of a fused chain as they pass; `logging_wrappers` wraps whole processors instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from shmjet.core.context import ProcessorContext


class PeekFunction:
    """Logs an item and lets it pass.

    Args:
        stage: the stage's name.
        to_text: what is written of an item.
        predicate: which items are written; None: all.
    """

    def __init__(
        self,
        stage: str,
        to_text: Callable[[Any], str],
        predicate: Callable[[Any], Any] | None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._stage = stage
        self._to_text = to_text
        self._predicate = predicate
        self._logger = logger

    def bind(self, context: ProcessorContext) -> PeekFunction:
        """Return a copy that logs where the processor runs."""
        return PeekFunction(self._stage, self._to_text, self._predicate, context.logger)

    def __call__(self, item: Any) -> bool:
        """Log the item if it is wanted; True, so that it passes."""
        if self._logger is not None and (self._predicate is None or self._predicate(item)):
            self._logger.info("%s: %s", self._stage, self._to_text(item))
        return True
