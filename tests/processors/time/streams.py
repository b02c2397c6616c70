"""Streams of events and watermarks, and processors driven through them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shmjet import Watermark
from tests.processors.driving import Driver, processors_of

EVENTS = st.tuples(st.integers(-60, 60), st.sampled_from("abc"))
"""A timestamp and a key."""


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """Events with rising watermarks among them."""
    stream: list[Any] = []
    top = -80
    for part in draw(st.lists(st.lists(EVENTS, max_size=6), max_size=6)):
        stream += part
        top += draw(st.integers(1, 40))
        stream.append(Watermark(top))
    return stream + draw(st.lists(EVENTS, max_size=4))


def run(supplier: Any, stream: list[Any]) -> Driver:
    """Drive a processor through a stream to its end."""
    (processor,) = processors_of(supplier)
    driver = Driver(processor)
    play(driver, stream)
    driver.complete()
    return driver


def play(driver: Driver, stream: list[Any], batch: int = 3) -> None:
    """Drive a processor through a stream that goes on."""
    items: list[Any] = []
    for item in [*stream, None]:
        if items and (item is None or isinstance(item, Watermark) or len(items) == batch):
            driver.feed(items)
            items = []
        if isinstance(item, Watermark):
            driver.until_true(driver.processor.try_process_watermark, item)
        elif item is not None:
            items.append(item)
