"""The requests that a member without code (`allow_code=False`) refuses, by their type alone."""

from __future__ import annotations

from typing import Any

from shmjet.cluster.protocol import Execute, GridCall, Upload

NO_CODE = (
    "this member takes no code from clients (allow_code is off): it runs the jobs of its own configuration, by name"
)


def carries_code(request: Any) -> bool:
    """Say whether a request holds what would be unpickled somewhere, or belongs to a job that a client brings."""
    match request:
        case Execute():
            return request.submission is not None
        case Upload():
            return True
        case GridCall():
            from shmjet.grid.code_free import brings_pickles  # its decoders take as long to make as ten modules

            return brings_pickles(request.body)
    return False
