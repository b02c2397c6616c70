"""What is drawn of a flow, where, and where nothing is."""

from __future__ import annotations

import io
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from shmjet import DAG, between, processors
from shmjet.data.errors import MemberLostError
from shmjet.execution.metrics import Metrics, WorkerMetrics
from shmjet.observe import live
from shmjet.observe.flow import Flow, FlowMeter
from shmjet.observe.html import flow_html
from shmjet.observe.picture import job_svg
from shmjet.observe.table import flow_view, worker_table
from tests.observe.numbers import chain, edge, metrics, vertex

SECOND = 1_000_000_000


def busy_flow() -> Flow:
    meter = FlowMeter()
    meter.take(chain(), 110.0)
    return meter.take(chain(received=250, waited_ns=(SECOND // 2, 0), now=True), 111.0)


def drawn(view: Any) -> str:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(view)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_table_has_a_row_for_each_vertex_and_names_the_full_edge() -> None:
    lines = [" ".join(line.split()) for line in drawn(flow_view(busy_flow(), "job x")).splitlines()]
    assert lines[0] == "job x 11 s source: 250 B of 1 kB (25%) 33 s to go busy 100%"
    assert "map \u00d72 250 250 250 250 75% ≤100% 90% 50%" in lines
    assert "sink 250 250 0 0 0% 10%" in lines
    assert lines[-1] == "full: source → map; source waits 50% of its time for map"


def test_names_are_not_taken_for_markup() -> None:
    flow = FlowMeter().take(metrics(vertex("[red]x[/]", 0), vertex("y", 0), edge("[red]x[/]", "y", queued=95)), 110.0)
    text = drawn(flow_view(flow, "[bold]job"))
    assert "[bold]job" in text
    assert "full: [red]x[/] → y" in text
    assert text.count("[red]x[/]") == 3


def test_html_escapes_names() -> None:
    flow = FlowMeter().take(metrics(vertex("<script>", 0), vertex("y", 0), edge("<script>", "y", queued=95)), 110.0)
    page = flow_html(flow, "<b>job")
    assert "<script>" not in page
    assert "<b>job" not in page
    assert page.count("&lt;script&gt;") == 3


def test_html_is_well_formed_and_has_the_numbers() -> None:
    page = flow_html(busy_flow(), "job & x").replace("&nbsp;", " ")
    root = ElementTree.fromstring(page)
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert rows[2] == ["map \u00d72", "250", "250", "250", "250", "75%", "90%", "50%"]
    assert root.find("progress") is not None


def test_workers_are_shown_with_their_memory() -> None:
    flow = FlowMeter().take(metrics(WorkerMetrics(0, 11, None, 0.5, 1, 1, 3)), 110.0)
    assert drawn(worker_table(flow.workers, {11: 30_000_000})).split()[-7:] == [
        "0",
        "11",
        "any",
        "50%",
        "3",
        "30",
        "MB",
    ]


def test_the_picture_of_a_job_has_counts_at_vertices_and_edges() -> None:
    dag = DAG()
    items = dag.new_vertex("items", processors.read_items([1]))
    dag.edge(between(items, dag.new_vertex("<sink>", processors.noop())))
    found = metrics(
        vertex("items", 0, emitted=2500), vertex("<sink>", 0, 0, received=2500), edge("items", "<sink>", 2500)
    )
    texts = [node.text for node in ElementTree.fromstring(job_svg(list(dag), dag.edges, found)).iter() if node.text]
    assert {"<sink>", "\u00d7 1: 2.5k out", "\u00d7 2: 2.5k in, 0 out", "2.5k"} <= set(texts)


# -- with a view and without ------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ended() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def test_nothing_is_drawn_into_a_file_or_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)

    def never() -> Metrics:
        raise AssertionError("metrics are asked for without a view")

    live.follow(ended(), never, "job")
    assert quiet.getvalue() == ""


def test_without_a_standard_error_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert live.open_view() is None


def test_a_terminal_gets_the_table_and_keeps_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    live.follow(ended(), lambda: chain(received=250), "my job")
    assert "my job" in terminal.getvalue()
    assert "waited for" in terminal.getvalue()


def test_following_ends_quietly_when_the_member_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())

    def lost() -> Metrics:
        raise MemberLostError("gone")

    live.follow(Future(), lost, "job")


def test_following_ends_with_the_time_that_a_job_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    execution: Future[None] = Future()
    live.follow(execution, lambda: chain(), "job", timeout=0.01)
    assert not execution.done()


class Display:
    """What IPython's `display` does: shows, and gives a handle that replaces what is shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        assert raw
        assert display_id
        self.shown.append(data)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown[-1] = data


def test_a_notebook_gets_html_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    view = live.open_view()
    assert isinstance(view, live.NotebookView)
    view.show(busy_flow(), "job")
    view.show(busy_flow(), "the same job")
    view.close()
    assert len(display.shown) == 1
    assert "the same job" in display.shown[0]["text/html"]


def test_ipython_on_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert live.open_view() is None


def test_the_title_says_that_a_job_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    execution, titles = Future[None](), list[str]()

    class View:
        def show(self, flow: Flow, title: str) -> None:
            titles.append(title)
            if not execution.done():
                execution.set_result(None)

        def close(self) -> None:
            titles.append("closed")

    monkeypatch.setattr(live, "open_view", View)
    monkeypatch.setattr(live, "REFRESH_S", 0.001)
    live.follow(execution, lambda: metrics(vertex("a", 0)), "clicks", note=lambda: " (suspended)")
    assert titles[0] == "clicks (suspended)"
    assert titles[-1] == "closed"
