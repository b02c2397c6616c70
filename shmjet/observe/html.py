"""A flow as HTML for a notebook: one table, styled in place, every name escaped. Pure presentation."""

from __future__ import annotations

from html import escape

from shmjet.observe.flow import Flow, VertexFlow, network_rate
from shmjet.observe.numbers import amount_text, bytes_rate_text, count_text, share_text, time_text

_CELL = "padding:2px 10px;text-align:right;white-space:nowrap"
_RED = "color:#c62828;font-weight:bold"


def flow_html(flow: Flow, title: str) -> str:
    """Return what is shown of a job."""
    rows = "".join(_row(flow, vertex) for vertex in flow.vertices)
    heads = ["vertex", "in", "/s", "out", "/s", "busy", "queue", "waited for"]
    heads += ["network"] if network_rate(flow.edges) is not None else []
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in heads)
    held = ""
    if (edge := flow.bottleneck) is not None:
        held = (
            f'<div><span style="{_RED}">full:</span> <b>{escape(edge.text)}</b>; {escape(edge.source)} waits '
            f"{share_text(edge.waiting)} of its time for {escape(edge.destination)}{escape(flow.crowding)}</div>"
        )
    return (
        f'<div class="shmjet-flow" style="font-size:90%">{_headline(flow, title)}'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"{held}</div>"
    )


def _headline(flow: Flow, title: str) -> str:
    parts = [f"<b>{escape(title)}</b>", time_text(flow.seconds)]
    for vertex in flow.vertices:
        if (work := vertex.work) is not None:
            parts.append(
                f"{escape(vertex.name)}: {amount_text(work.done, work.unit)} of {amount_text(work.total, work.unit)} "
                f"({share_text(work.share)})"
            )
    if flow.is_read:
        parts.append("all read")
    if flow.eta is not None and (flow.share or 0.0) < 1:
        parts.append(f"{time_text(flow.eta)} to go")
    line = f"<div>{' &nbsp; '.join(parts)}</div>"
    if flow.share is None:
        return line
    return f'{line}<progress max="1" value="{flow.share:.4f}" style="width:20em"></progress>'


def _row(flow: Flow, vertex: VertexFlow) -> str:
    inbound = [edge for edge in flow.edges if edge.destination == vertex.name]
    fullest = max(inbound, key=lambda edge: (edge.waiting, edge.fill), default=None)
    name = escape(vertex.name) + (f" \u00d7{vertex.processors}" if vertex.processors > 1 else "")
    cells = [
        ("✓ " if vertex.has_ended else "") + name,
        count_text(vertex.received) if inbound else "",
        count_text(vertex.received_rate) if inbound else "",
        count_text(vertex.emitted),
        count_text(vertex.emitted_rate),
        share_text(vertex.busy),
        "" if fullest is None else share_text(fullest.fill),
        "" if fullest is None or fullest.waiting < 0.005 else share_text(fullest.waiting),
    ]
    if network_rate(flow.edges) is not None:
        cells.append(bytes_rate_text(network_rate(inbound)))
    styles = [_CELL] * len(cells)
    if fullest is not None and fullest is flow.bottleneck:
        styles[6] = styles[7] = f"{_CELL};{_RED}"
    return "<tr>" + "".join(f'<td style="{s}">{c}</td>' for s, c in zip(styles, cells, strict=True)) + "</tr>"
