"""`shmjet.spark.source` where the pipeline itself runs on Spark: the rows stay there, as batches in the same tasks.

The feed's own ladder of ways to read a DataFrame is used (`shmjet.spark.row_readers`), and its own reader of what comes
by them, so that the items are the same as in the engine. Must not know what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shmjet.spark.mapping import Contents, head_of
from shmjet.spark.runner.failures import guarded
from shmjet.spark.runner.rdd_blocks import lists_by
from shmjet.spark.schema import Field


@dataclass(frozen=True)
class ReadFrames:
    """Makes lists of what a DataFrame or an RDD gives to Python.

    Args:
        vertex: for errors.
        fields: of the columns.
        content: of frames of bytes; None: `chunks` makes frames of elements.
        chunks: see `shmjet.spark.rows`.
        heads: begin with a batch without rows, which tells the columns.
    """

    vertex: str
    fields: tuple[Field, ...]
    content: Any
    chunks: Any
    heads: bool = False

    def __call__(self, index: int, elements: Iterable[Any]) -> Iterator[list[Any]]:
        """Return lists of one batch, or of many items."""
        return guarded(self._run(index, elements), self.vertex, index)

    def _run(self, index: int, elements: Iterable[Any]) -> Iterator[list[Any]]:
        contents = Contents(self.fields)
        if self.heads:
            yield [head_of(self.fields)]
        if self.chunks is None:
            for length, stream in elements:
                memory = bytearray(length)
                stream.readinto(memoryview(memory))
                yield contents.open(self.content, memory, 0, length)
            return
        for content, parts, _, _ in self.chunks.frames(index, elements):
            frame = b"".join(parts)
            yield contents.open(content, frame, 0, len(frame))


def flow_of_frames(vertex: str, source: Any) -> Any:
    """Return the RDD of the lists of a `SparkSource`."""
    prepared = source.prepare()
    flow = lists_by(prepared.rdd, ReadFrames(vertex, source.fields, prepared.content, prepared.chunks, source.heads))
    if prepared.content is None:
        from shmjet.spark.strict import StrictSerializer

        flow._prev_jrdd_deserializer = StrictSerializer(flow._prev_jrdd_deserializer)
    return flow
