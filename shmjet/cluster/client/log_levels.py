"""The levels from which the processes of an instance send log records; imports nothing that takes time."""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "SHMJET_LOG_LEVEL"

_NAMES = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50}
_INFO, _WARNING = 20, 30


def levels() -> tuple[int, int]:
    """Return the levels from which records of shmjet's loggers, and those of all others, are worth sending.

    That of shmjet's is what SHMJET_LOG_LEVEL says, else the level of the logger `shmjet` of this process, else INFO.
    """
    logging: Any = sys.modules.get("logging")  # a program that has not imported it has not configured it
    own = 0 if logging is None else logging.getLogger("shmjet").level
    root = 0 if logging is None else logging.getLogger().level
    level = _NAMES.get(os.environ.get(VARIABLE, "").upper(), own or _INFO)
    return level, min(root or _WARNING, _WARNING)
