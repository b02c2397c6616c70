"""Showing a job while it runs: on a terminal with rich, in a notebook as HTML, and nowhere else.

Standard error is drawn on, so that what a program prints stays clean. A program whose output goes into a file or a pipe
gets nothing, however often it asks for progress.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Protocol

from shmjet.data.errors import ShmjetError
from shmjet.execution.metrics import Metrics
from shmjet.observe.flow import Flow, FlowMeter

REFRESH_S = 0.2
"""Seconds between two pictures."""


class View(Protocol):
    """A display of a flow that can be updated."""

    def show(self, flow: Flow, title: str) -> None:
        """Draw the present state in place of the last one."""

    def close(self) -> None:
        """Leave the last state where it is, and clean up."""


class TerminalView:
    """Redraws a table on a terminal.

    Args:
        console: rich's; standard error unless given.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=False)
        self._live.start()

    def show(self, flow: Flow, title: str) -> None:
        from shmjet.observe.table import flow_view

        self._live.update(flow_view(flow, title), refresh=True)

    def close(self) -> None:
        self._live.stop()


class NotebookView:
    """Updates one output of a notebook's cell.

    Args:
        display: `IPython.display.display`.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, flow: Flow, title: str) -> None:
        from shmjet.observe.html import flow_html

        data = {"text/html": flow_html(flow, title), "text/plain": title}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def close(self) -> None:
        """The output stays."""


def open_view() -> View | None:
    """Return a view in a notebook or on a terminal; None without either."""
    if (display := _notebook_display()) is not None:
        return NotebookView(display)
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        is_terminal = False
    return TerminalView() if is_terminal else None


def follow(
    execution: Future[None],
    metrics: Callable[[], Metrics],
    title: str,
    timeout: float | None = None,
    note: Callable[[], str] = lambda: "",
) -> None:
    """Show an execution until it has ended, or `timeout` seconds are over; returns at once without a view.

    Args:
        execution: its future; what it raises is not raised here.
        metrics: gives its metrics.
        title: how it is called.
        timeout: seconds.
        note: gives what is said after the title, such as that it is suspended.
    """
    view = open_view()
    if view is None:
        return
    meter = FlowMeter()
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        ended = False
        while not ended:
            left = REFRESH_S if deadline is None else min(REFRESH_S, deadline - time.monotonic())
            if left <= 0:
                return
            ended = bool(wait([execution], timeout=left).done)
            try:
                found = metrics()
            except ShmjetError:  # the member is gone: the execution will say so
                return
            if found.vertices:
                view.show(meter.take(found, time.time()), title + note())
    finally:
        view.close()


def _notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` in a notebook's kernel; None in a plain interpreter, and in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Callable[..., Any] = __import__("IPython.display", fromlist=["display"]).display
    return display
