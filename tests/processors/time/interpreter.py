"""What windows must give, in plain Python: all events are kept, and each window is looked up among them.

Written from Jet's description of windows, not from the processors: slow, and without frames.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from shmjet import KeyedWindowResult, Watermark

Stream = list[Any]
"""Events `(timestamp, key)` and watermarks."""


def in_time(stream: Stream, slide: int, offset: int = 0) -> tuple[list[tuple[int, Any]], int]:
    """Return the events of sliding windows that are not late, and how many are."""
    kept, late, following = [], 0, None
    for item in stream:
        if isinstance(item, Watermark):
            following = item.timestamp - (item.timestamp - offset) % slide + slide
        elif following is not None and item[0] < following - slide:
            late += 1
        else:
            kept.append(item)
    return kept, late


def sliding_counts(stream: Stream, size: int, slide: int) -> dict[tuple[int, int, Any], int]:
    """Return the number of events by window and key."""
    counts: dict[tuple[int, int, Any], int] = defaultdict(int)
    for timestamp, key in in_time(stream, slide)[0]:
        end = timestamp - timestamp % slide + slide
        while end - size <= timestamp:
            counts[end - size, end, key] += 1
            end += slide
    return dict(counts)


def session_counts(stream: Stream, gap: int) -> tuple[dict[tuple[int, int, Any], int], int]:
    """Return the number of events by session and key, and the number of late events."""
    open_sessions: list[tuple[Any, list[int]]] = []
    closed: dict[tuple[int, int, Any], int] = {}
    watermark, late = None, 0

    def close(limit: int | None) -> None:
        for session in open_sessions[:]:
            key, stamps = session
            if limit is None or max(stamps) + gap < limit:
                open_sessions.remove(session)
                closed[min(stamps), max(stamps) + gap, key] = len(stamps)

    for item in stream:
        if isinstance(item, Watermark):
            watermark = item.timestamp
            close(watermark)
        elif watermark is not None and item[0] < watermark:
            late += 1
        else:
            timestamp, key = item
            stamps = [timestamp]
            for session in open_sessions[:]:
                if session[0] == key and min(session[1]) < timestamp + gap and timestamp < max(session[1]) + gap:
                    open_sessions.remove(session)
                    stamps = session[1] + stamps
            open_sessions.append((key, stamps))
    close(None)
    return closed, late


def counted(output: list[Any]) -> dict[tuple[int, int, Any], int]:
    """Return what a processor has emitted, by window and key; each may be there once."""
    results = [item for item in output if isinstance(item, KeyedWindowResult)]
    found = {(result.start, result.end, result.key): result.result for result in results}
    assert len(found) == len(results)
    return found
