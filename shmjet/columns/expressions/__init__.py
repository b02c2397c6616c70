"""What expressions mean: computing `shmjet.core.expressions` over batches.

`Projection` and `Selection` are made once for a stage, travel to its workers and are applied to each batch, in blocks
of rows that stay in a core's cache. Must not know stages or processors.
"""

from __future__ import annotations

from shmjet.columns.expressions.projection import Projection, Selection, evaluate

__all__ = ["Projection", "Selection", "evaluate"]
