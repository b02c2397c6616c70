"""Suppliers of window processors: what `shmjet.processors` offers for windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shmjet.core.durations import Duration, milliseconds
from shmjet.core.key_functions import KeyFn
from shmjet.core.processor import Processor
from shmjet.core.windows import SessionWindow, SlidingWindow, SlidingWindowPolicy
from shmjet.processors.general.aggregate import checked_operation, naming_keys, saving_accumulators
from shmjet.processors.general.aggregate_by_key import KeyFns
from shmjet.processors.general.base import Supply
from shmjet.processors.time.events import Events, TimestampFn, event_fns
from shmjet.processors.time.frames import Op
from shmjet.processors.time.session_window import EarlySessionWindowProcessor, SessionWindowProcessor
from shmjet.processors.time.sliding_window import (
    CombiningWindowProcessor,
    EarlySlidingWindowProcessor,
    FrameProcessor,
    SlidingWindowProcessor,
)
from shmjet.processors.time.window_output import MapToOutput, WindowOutput

TimestampFns = TimestampFn | Sequence[TimestampFn] | None


def aggregate_to_sliding_window(
    key_fns: KeyFn | Sequence[KeyFn],
    timestamp_fns: TimestampFns,
    window: SlidingWindow | SlidingWindowPolicy,
    op: Op,
    *,
    early_results: Duration = 0,
    map_to_output: MapToOutput | None = None,
    keyed: bool = True,
    timed: bool = False,
    late_ordinal: int | None = None,
) -> Callable[[], Processor]:
    """Aggregate the events of each key in tumbling or sliding windows; a watermark that passes a window emits it.

    An event is late when the window that its frame ends with has been emitted. Late events without an ordinal are
    counted in the metric `late_events_dropped`. At the end of its inputs the processor emits all windows that are left.

    Args:
        key_fns: key of an item (None: the item itself); or a sequence of such functions, one per inbound edge.
        timestamp_fns: timestamp of an item: milliseconds since the epoch, an aware `datetime`, or a `datetime64`; or a
            sequence of such functions. None with `timed`.
        window: made by `tumbling` or `sliding`.
        op: the operation. One with several inputs takes those of input i from inbound edge i.
        early_results: seconds between results of windows that have not ended, by the wall clock; 0: there are none.
        map_to_output: `(start, end, key, result, is_early)` -> what is emitted, or None for nothing. By default
            `KeyedWindowResult`, without keys `WindowResult`.
        keyed: False: there are no keys, and `key_fns` is None.
        timed: items are pairs `(timestamp, item)`, the functions are of the item inside, and results are emitted as
            pairs with their event time, end - 1.
        late_ordinal: outbound ordinal to which late items go, as they came; results go to the others.

    Raises:
        TypeError: an argument has the wrong type. ValueError: `op` has more inputs than there are functions, or no
            `combine` where windows are made of several frames. ConfigError: a duration is out of range.

    Example:
        >>> from shmjet import Watermark, tumbling
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> events = aggregate_to_sliding_window(lambda e: e[1], lambda e: e[0], tumbling(1), counting())
        >>> verify_processor(events).inputs([(5, "a"), (999, "a"), Watermark(1_000)]).expect(
        ...     [(0, 1_000, "a", 2, False), Watermark(1_000)])
    """
    name = "aggregate_to_sliding_window"
    policy = _policy(name, window)
    checked = checked_operation(name, op, not policy.is_tumbling)
    events = _events(name, key_fns, timestamp_fns, op, keyed, timed)
    output = WindowOutput(checked, keyed=keyed, timed=timed, map_to_output=map_to_output)
    period = milliseconds(f"{name}: early_results", early_results, least=0) / 1000
    if period:
        early = Supply(EarlySlidingWindowProcessor, events, policy, checked, output, late_ordinal, period=period)
        return _in_slides(early, policy, checked, keyed)
    supply = Supply(SlidingWindowProcessor, events, policy, checked, output, late_ordinal)
    return _in_slides(supply, policy, checked, keyed)


def accumulate_by_frame(
    key_fns: KeyFn | Sequence[KeyFn],
    timestamp_fns: TimestampFns,
    window: SlidingWindow | SlidingWindowPolicy,
    op: Op,
    *,
    keyed: bool = True,
    timed: bool = False,
    late_ordinal: int | None = None,
) -> Callable[[], Processor]:
    """First stage of two: emit the accumulators of each frame, for `combine_to_sliding_window` of the same windows.

    It emits `KeyedWindowResult(start, end, key, accumulator)` of frames (without keys `WindowResult`), also in a job
    whose items are timed. The edge into it may be local and unpartitioned; the edge out of it is partitioned by `key`.

    Args:
        key_fns, timestamp_fns, window, keyed, timed, late_ordinal: as for `aggregate_to_sliding_window`.
        op: an operation with `combine`.

    Raises:
        TypeError: an argument has the wrong type. ValueError: `op` has no `combine`, or more inputs than there are
            functions.

    Example:
        >>> from shmjet import Watermark, sliding
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> frames = accumulate_by_frame(lambda e: e[1], lambda e: e[0], sliding(10, 1), counting())
        >>> verify_processor(frames).without_snapshots().inputs([(5, "a"), Watermark(1_000)]).expect(
        ...     [(0, 1_000, "a", 1, False), Watermark(1_000)])
    """
    name = "accumulate_by_frame"
    policy = _policy(name, window).tumbling_by_frame()
    checked = checked_operation(name, op, True)
    events = _events(name, key_fns, timestamp_fns, op, keyed, timed)
    output = WindowOutput(checked, keyed=keyed, finishes=False)
    frames = Supply(FrameProcessor, events, policy, checked, output, late_ordinal)
    return _in_slides(frames, policy, checked, keyed)


def combine_to_sliding_window(
    window: SlidingWindow | SlidingWindowPolicy,
    op: Op,
    *,
    map_to_output: MapToOutput | None = None,
    keyed: bool = True,
    timed: bool = False,
) -> Callable[[], Processor]:
    """Second stage of two: combine what `accumulate_by_frame` emits, and emit the results of windows.

    Args:
        window: made by `tumbling` or `sliding`, as in the first stage.
        op: the operation of the first stage.
        map_to_output, keyed: as for `aggregate_to_sliding_window`.
        timed: results are emitted as pairs with their event time, end - 1.

    Raises:
        TypeError: an argument has the wrong type. ValueError: `op` has no `combine`.

    Example:
        >>> from shmjet import KeyedWindowResult, Watermark, sliding
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> frames = [KeyedWindowResult(0, 1_000, "a", 2), KeyedWindowResult(0, 1_000, "a", 1)]
        >>> verify_processor(combine_to_sliding_window(sliding(2, 1), counting())).inputs(frames).expect(
        ...     [(-1_000, 1_000, "a", 3, False), (0, 2_000, "a", 3, False)])
    """
    name = "combine_to_sliding_window"
    policy = _policy(name, window)
    checked = checked_operation(name, op, True)
    output = WindowOutput(checked, keyed=keyed, timed=timed, map_to_output=map_to_output)
    events = Events(KeyFns(None) if keyed else None, None)
    return _in_slides(Supply(CombiningWindowProcessor, events, policy, checked, output), policy, checked, keyed)


def aggregate_to_session_window(
    key_fns: KeyFn | Sequence[KeyFn],
    timestamp_fns: TimestampFns,
    gap: Duration | SessionWindow,
    op: Op,
    *,
    early_results: Duration = 0,
    map_to_output: MapToOutput | None = None,
    keyed: bool = True,
    timed: bool = False,
    late_ordinal: int | None = None,
) -> Callable[[], Processor]:
    """Aggregate the events of each key in sessions; a watermark above the end of a session emits it.

    An event at t is the interval from t to t + gap. Events whose intervals overlap are in one session, also when it is
    a third event that connects them; intervals that only touch are not connected. An event is late when it is below
    the last watermark.

    Args:
        key_fns, timestamp_fns, early_results, map_to_output, keyed, timed, late_ordinal: as for
            `aggregate_to_sliding_window`.
        gap: seconds without an event that end a session; or what `session` made.
        op: an operation with `combine`.

    Raises:
        TypeError: an argument has the wrong type. ValueError: `op` has no `combine`, or more inputs than there are
            functions. ConfigError: a duration is out of range.

    Example:
        >>> from shmjet import Watermark
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> sessions = aggregate_to_session_window(lambda e: e[1], lambda e: e[0], 1, counting())
        >>> verify_processor(sessions).inputs([(5, "a"), (900, "a"), Watermark(2_000)]).expect(
        ...     [(5, 1_900, "a", 2, False), Watermark(2_000)])
    """
    name = "aggregate_to_session_window"
    gap_ms = gap.gap if isinstance(gap, SessionWindow) else milliseconds(f"{name}: gap", gap)
    checked = checked_operation(name, op, True)
    events = _events(name, key_fns, timestamp_fns, op, keyed, timed)
    output = WindowOutput(checked, keyed=keyed, timed=timed, map_to_output=map_to_output)
    period = milliseconds(f"{name}: early_results", early_results, least=0) / 1000
    if period:
        early = Supply(EarlySessionWindowProcessor, events, gap_ms, checked, output, late_ordinal, period=period)
        return naming_keys(saving_accumulators(early, checked), keyed)
    supply = Supply(SessionWindowProcessor, events, gap_ms, checked, output, late_ordinal)
    return naming_keys(saving_accumulators(supply, checked), keyed)


def without_event_time(supplier: Callable[[], Processor]) -> Callable[[], Processor]:
    """Return a supplier of windows of timed items, whose results leave without their event time.

    Args:
        supplier: what `aggregate_to_sliding_window` or `aggregate_to_session_window` gave.
    """
    assert isinstance(supplier, Supply), supplier
    args = (each.without_event_time() if isinstance(each, WindowOutput) else each for each in supplier.args)
    untimed = Supply(supplier.processor, *args, **supplier.kwargs)
    untimed.state_kind = supplier.state_kind
    return untimed


def _policy(name: str, window: Any) -> SlidingWindowPolicy:
    if isinstance(window, SlidingWindowPolicy):
        return window
    if not isinstance(window, SlidingWindow):
        raise TypeError(f"{name}: the window must be tumbling(...) or sliding(...), got {window!r}")
    return window.policy


def _events(
    name: str,
    key_fns: KeyFn | Sequence[KeyFn],
    timestamp_fns: TimestampFns,
    op: Op,
    keyed: bool,
    timed: bool,
) -> Events:
    if not keyed and key_fns is not None:
        raise TypeError(f"{name}: without keys key_fns must be None, got {key_fns!r}")
    for what, fns in (("key", key_fns), ("timestamp", timestamp_fns)):
        if isinstance(fns, Sequence) and len(fns) < op.inputs:
            raise ValueError(f"{name}: the operation has {op.inputs} inputs, but there are {len(fns)} {what} functions")
    return Events(KeyFns(key_fns) if keyed else None, event_fns(name, timestamp_fns, timed))


def _in_slides(supply: Supply, policy: SlidingWindowPolicy, op: Op, keyed: bool) -> Supply:
    """Let the kind of saved state name the slide, too: frames of another one would be counted in wrong windows."""
    naming_keys(saving_accumulators(supply, op), keyed).state_kind += f" in slides of {policy.slide} ms"
    return supply
