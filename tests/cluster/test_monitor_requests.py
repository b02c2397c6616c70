"""What a member that ends answers who looks at it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from shmjet import JetConfig
from shmjet.cluster.client import launch
from shmjet.cluster.member.monitor_requests import MonitorRequests
from shmjet.cluster.protocol import Look, Looked, PartitionCounts, Refused
from shmjet.cluster.settings import MemberSettings
from shmjet.data.decoders import converter
from shmjet.execution.control import control_size
from shmjet.ring.arena import Arena


def test_who_looks_at_a_member_that_lets_go_hears_that_it_ends() -> None:
    told: list[Any] = []
    client: Any = SimpleNamespace(send=told.append)
    settings = converter(MemberSettings)(launch.member_settings(JetConfig(cores=1)))
    no_parts = cast("Any", SimpleNamespace(led_elsewhere=()))
    with Arena.create(control_size(1), label="control") as segment:
        requests = MonitorRequests(settings, segment, lambda: (), no_parts, lambda: PartitionCounts())
        requests.note_change()
        requests.list_executions(client, Look(1))
        requests.close()
        requests.note_change()
        requests.list_executions(client, Look(2))
    first, second = told
    assert isinstance(first, Looked)
    assert first.changes == 1
    assert second == Refused(2, "MemberLostError", "the member is ending")
