"""Logging of member and workers: records of `shmjet` loggers go to stderr, which they share with the user's process."""

from __future__ import annotations

import logging
import os
import sys


def log_to_stderr() -> None:
    """Send records of level INFO (`SHMJET_LOG_LEVEL`) and above to stderr, with the process they come from."""
    root = logging.getLogger("shmjet")
    root.setLevel(os.environ.get("SHMJET_LOG_LEVEL", "INFO").upper())
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(process)d] %(message)s"))
        root.addHandler(handler)
        root.propagate = False
