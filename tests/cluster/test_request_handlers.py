"""The table of request handlers of a member."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from shmjet.cluster.member.request_handlers import RequestHandler, Scope, request_handlers
from shmjet.cluster.protocol import Execute, GridCall, Look, Ping, Request, Shutdown


def handlers(**given: Any) -> typing.Mapping[type, RequestHandler]:
    names = (
        "submissions",
        "jobs",
        "lifecycle",
        "snapshots",
        "participants",
        "attachments",
        "grid",
        "observables",
        "partitions",
        "cluster_status",
        "monitor",
        "attach",
        "take_line",
        "shut_down",
        "go_on_without",
    )
    return request_handlers(**{name: Mock() for name in names} | given)


def test_each_type_of_request_has_a_handler() -> None:
    assert set(handlers()) == set(typing.get_args(Request))


def test_the_architecture_page_says_where_each_request_is_answered() -> None:
    page = (Path(__file__).parents[2] / "docs/ARCHITECTURE.md").read_text()
    section = page.partition("### Which request is answered where")[2]
    named = [name for row in section.splitlines() if row.startswith("| `") for name in re.findall(r"`([A-Z]\w+)`", row)]
    assert sorted(named) == sorted(kind.__name__ for kind in typing.get_args(Request))


def test_jobs_are_for_the_coordinator_and_descriptors_stay_on_their_host() -> None:
    table = handlers()
    assert table[Execute].scope is Scope.COORDINATOR
    assert table[GridCall].scope is Scope.MEMBER, "it names the member that it is for"
    assert table[Look].scope is Scope.HOST
    assert table[Ping].scope is Scope.MEMBER


def test_only_a_handler_that_keeps_descriptors_gets_them() -> None:
    submissions, shut_down, client = Mock(), Mock(), Mock()
    table = handlers(submissions=submissions, shut_down=shut_down)
    run, end = Execute(1, "job", None, False), Shutdown(2)
    table[Execute](client, run, [7])
    table[Shutdown](client, end, [7])
    submissions.execute.assert_called_once_with(client, run, [7])
    shut_down.assert_called_once_with(client, end)
