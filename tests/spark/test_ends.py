"""Where the sinks of a pipeline are done on Spark; no Spark runs here."""

from __future__ import annotations

import pytest

from shmjet import PlanError, sinks
from shmjet.pipeline.definitions import SinkDef
from shmjet.spark.runner.ends import Place, sink_end


@pytest.mark.parametrize(
    "sink",
    [
        sinks.assert_ordered([]),
        sinks.assert_any_order([]),
        sinks.assert_contains([]),
        sinks.assert_collected(len),
        sinks.assert_collected_eventually(1, len),
    ],
    ids=repr,
)
def test_what_looks_at_all_items_is_done_by_the_driver(sink: SinkDef[object]) -> None:
    assert sink_end("stage", sink).place is Place.DRIVER


def test_an_observable_needs_members() -> None:
    with pytest.raises(
        PlanError, match=r"seen: an observable shows .* have no member to write to; write files, or coll"
    ):
        sink_end("seen", sinks.observable("x"))
