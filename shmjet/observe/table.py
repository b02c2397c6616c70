"""A flow as a table for the terminal, with rich. Pure presentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shmjet.host.terminal_text import clean_line
from shmjet.observe.flow import EdgeFlow, Flow, VertexFlow, WorkerFlow, network_rate
from shmjet.observe.numbers import amount_text, bytes_rate_text, count_text, share_text, time_text

SHADES = " ▁▂▃▄▅▆▇█"
"""A worker's busy share in one character, from asleep to busy all the time."""

_HOT = 0.8
"""From this busy share on a vertex is drawn as having no time left."""


def flow_view(flow: Flow, title: str) -> RenderableType:
    """Return what is drawn of a job: a headline, how far it is, its vertices, and what holds it up."""
    parts: list[RenderableType] = [headline(flow, title)]
    if (share := flow.share) is not None:
        line = Table.grid()  # a bar alone would not end its line
        line.add_row(ProgressBar(total=1.0, completed=share, width=40))
        parts.append(line)
    parts.append(vertex_table(flow))
    if flow.bottleneck is not None:
        parts.append(bottleneck_line(flow.bottleneck).append(clean_line(flow.crowding)))
    return Group(*parts)


def headline(flow: Flow, title: str) -> Text:
    """One line: name, time, how far, time to go, workers."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(clean_line(title), style="bold").append(f"  {time_text(flow.seconds)}")
    for vertex in flow.vertices:
        if (work := vertex.work) is not None:
            amounts = f"{amount_text(work.done, work.unit)} of {amount_text(work.total, work.unit)}"
            line.append(f"  {clean_line(vertex.name)}: {amounts} ({share_text(work.share)})")
    if flow.is_read:
        line.append("  all read", style="cyan")
    if flow.eta is not None and (flow.share or 0.0) < 1:
        line.append(f"  {time_text(flow.eta)} to go", style="cyan")
    if flow.workers:
        line.append(f"  {busy_text([worker.busy for worker in flow.workers])}", style="dim")
    return line


def vertex_table(flow: Flow) -> Table:
    """A row for each vertex, with the fullest of its inbound edges, and what comes from other members if anything."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("vertex", no_wrap=True, overflow="ellipsis", min_width=8)
    crosses = network_rate(flow.edges) is not None
    for name in ("in", "/s", "out", "/s", "busy", "queue", "waited for", *(["network"] if crosses else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for vertex in flow.vertices:
        inbound = [edge for edge in flow.edges if edge.destination == vertex.name]
        network = [bytes_rate_text(network_rate(inbound))] if crosses else []
        table.add_row(*_row(vertex, inbound, flow.bottleneck), *network)
    return table


def _row(vertex: VertexFlow, inbound: Sequence[EdgeFlow], bottleneck: EdgeFlow | None) -> Iterable[RenderableType]:
    name = Text.assemble(("✓ ", "green") if vertex.has_ended else "", clean_line(vertex.name))
    yield name.append(f" \u00d7{vertex.processors}", style="dim") if vertex.processors > 1 else name
    has_inputs = bool(inbound)
    yield count_text(vertex.received) if has_inputs else ""
    yield count_text(vertex.received_rate) if has_inputs else ""
    yield count_text(vertex.emitted)
    yield count_text(vertex.emitted_rate)
    busy = share_text(vertex.busy)
    if vertex.busiest - vertex.busy > 0.2:
        busy += f" [dim]≤{share_text(vertex.busiest)}[/]"
    yield f"[bold red]{busy}[/]" if vertex.busiest >= _HOT else busy
    fullest = max(inbound, key=lambda edge: (edge.waiting, edge.fill), default=None)
    if fullest is None:
        yield ""
        yield ""
        return
    style = "bold red" if fullest is bottleneck else "yellow" if fullest.is_full else "default"
    yield Text(share_text(fullest.fill), style=style)
    yield Text(share_text(fullest.waiting) if fullest.waiting >= 0.005 else "", style=style)


def bottleneck_line(edge: EdgeFlow) -> Text:
    """What holds the job up, in a sentence."""
    line = Text("full: ", style="bold red", no_wrap=True, overflow="ellipsis")
    line.append(clean_line(edge.text), style="bold")
    waits = f"; {edge.source} waits {share_text(edge.waiting)} of its time for {edge.destination}"
    line.append(clean_line(waits), style="default")
    return line


def worker_table(workers: Sequence[WorkerFlow], memory: dict[int, int] | None = None) -> Table:
    """A row for each worker. `memory`: resident bytes by pid, where they are known."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for name in ("worker", "pid", "core", "busy", "tasklets", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for worker in workers:
        held = None if worker.pid is None else (memory or {}).get(worker.pid)
        table.add_row(
            str(worker.index),
            "" if worker.pid is None else str(worker.pid),
            "any" if worker.core is None else str(worker.core),
            share_text(worker.busy),
            str(worker.tasklets),
            "" if held is None else amount_text(held, "bytes"),
        )
    return table


def busy_text(shares: Sequence[float]) -> str:
    """Say how busy workers are: in per cent when they are few, else in a character each.

    Example:
        >>> busy_text([0.5, 1.0])
        'busy 50% 100%'
        >>> busy_text([0.0, 1.0] * 8)
        'busy [ █ █ █ █ █ █ █ █]'
    """
    if len(shares) <= 8:
        return "busy " + " ".join(f"{share:.0%}" for share in shares)
    return "busy [" + "".join(SHADES[round(share * (len(SHADES) - 1))] for share in shares) + "]"
