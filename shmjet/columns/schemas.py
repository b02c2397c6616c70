"""Schemas: the type of each column of a stream of batches.

Kinds are those of `shmjet.data.column_types`, and `shmjet.data.fitting` brings columns to them. Must not know where
columns come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shmjet.data.column_types import Kind, kind_of
from shmjet.data.errors import BatchError
from shmjet.data.fitting import fitted
from shmjet.data.typed_column import nulls

__all__ = ["UNTYPED", "Kind", "fitted", "kind_of", "nulls", "schema_of"]

UNTYPED: Final = np.dtype(np.float64)
"""What nulls of no type are stored as."""


def schema_of(given: Mapping[str, Any]) -> dict[str, Kind]:
    """Return a user's schema with kinds for its words.

    Raises:
        BatchError: it is not a mapping, or the type of a column is not a type.
    """
    if not isinstance(given, Mapping):
        raise BatchError(f"a schema is a dict of names and dtypes, got {type(given).__name__}")
    return {name: kind_of(name, kind) for name, kind in given.items()}
