"""Event time around processors that know nothing of it."""

from __future__ import annotations

from typing import Any

from shmjet import processors
from shmjet.core import AbstractProcessor, Watermark
from shmjet.processors.general.timed_wrapping import timed_wrapping
from shmjet.testing import verify_processor


class Echo(AbstractProcessor):
    """Emits each item, says when a watermark comes, and what it has seen at the end."""

    def __init__(self) -> None:
        self.seen = 0
        self.told: int | None = None

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        if not self.try_emit(item):
            return False
        self.seen += 1
        return True

    def try_process_watermark(self, watermark: Watermark) -> bool:
        if self.told != watermark.timestamp:
            if not self.try_emit("now"):
                return False
            self.told = watermark.timestamp
        return super().try_process_watermark(watermark)

    def complete(self) -> bool:
        return self.try_emit(self.seen)

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("state", (self.seen, self.told))

    def restore(self, key: Any, value: Any) -> None:
        self.seen, self.told = value


def test_what_is_emitted_has_the_time_of_what_is_at_hand() -> None:
    inputs = [(10, "a"), (10, "b"), (7, "c"), Watermark(9), (12, "d"), Watermark(20)]
    expected = [
        (10, "a"),
        (10, "b"),
        (7, "c"),
        (9, "now"),
        Watermark(9),
        (12, "d"),
        (20, "now"),
        Watermark(20),
        (20, 4),
    ]
    verify_processor(timed_wrapping(Echo)).inputs(inputs).expect(expected)


def test_before_the_first_watermark_it_is_that_of_the_last_item() -> None:
    verify_processor(timed_wrapping(Echo)).inputs([(10, "a"), (7, "b")]).expect([(10, "a"), (7, "b"), (7, 2)])


def test_bulk_processors_and_suppliers_of_all_levels_can_be_wrapped() -> None:
    pairs = [(3, 1), (3, 2), (4, 3)]
    for level in (
        processors.flat_map(range),
        processors.flat_map(lambda n: iter(range(n))),
    ):
        verify_processor(timed_wrapping(level)).inputs(pairs).expect([(3, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2)])
