"""The line of `shmjet top` on a job's suspension, attempts and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from shmjet.cli.top import at_rest, life_text
from shmjet.cluster.lifecycle_messages import LastRestart, LastSnapshot, SuspensionCause, VertexState
from shmjet.cluster.protocol import ExecutionRow
from shmjet.observe.flow import Flow, VertexFlow, Work

LAST = LastSnapshot(12, 95.0, 0.25, 4096, 7, {"count": VertexState(7, 4096), "read": VertexState(0, 0)})


@pytest.mark.parametrize(
    ("status", "more", "text"),
    [
        ("running", {}, None),
        ("starting", {"attempts": 3}, "starting · attempt 3"),
        ("suspended", {"cause": SuspensionCause(True)}, "suspended by a user"),
        ("suspended", {"cause": SuspensionCause(False, "no \x1b room\nmore")}, "suspended: no \\x1b room"),
        ("not_running", {"waits_for": "2 members"}, "not running · waits for 2 members"),
        (
            "running",
            {"attempts": 2, "restart": LastRestart("a member was lost", 0.5), "members": ["a:1", "b:1"]},
            "attempt 2 · last restart took 0.5 s: a member was lost · 2 members",
        ),
        (
            "running",
            {"guarantee": "exactly_once", "snapshot": LAST},
            "exactly once · snapshot 12: 4.1 kB, 7 keys in 0.2 s, 5.0 s ago · count 4.1 kB",
        ),
    ],
)
def test_what_is_not_in_the_flow_of_a_job(status: str, more: dict[str, Any], text: str | None) -> None:
    row = ExecutionRow(1, "abc", None, status, False, 10.0, None, None, None, None, **more)
    assert life_text(row, 100.0) == text


def test_nothing_of_a_suspended_job_moves() -> None:
    vertex = VertexFlow("items", 1, 0, 40, 0.0, 8.0, 0.5, 0.5, False, Work(40, 100, "items", 7.5))
    flow = at_rest(Flow(5.0, (vertex,), (), (), None))
    assert (flow.rate, flow.eta, flow.share, flow.vertices[0].emitted) == (0.0, None, None, 40)
