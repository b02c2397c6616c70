"""How much is said about strangers."""

from __future__ import annotations

import logging

import pytest

from shmjet.ipc.rate_limited_log import BURST, RateLimitedLog


def test_after_some_lines_there_is_one_a_second_that_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    words = RateLimitedLog(logging.getLogger("strangers"), lambda: now)
    for number in range(BURST + 30):
        words.warning("stranger %d", number)
    now = 1.0
    words.warning("stranger %s", "of later")
    words.warning("stranger %s", "left out")
    now = 1000.0
    words.warning("stranger of much later")
    words.warning("the next")
    texts = [record.getMessage() for record in caplog.records]
    assert texts[:BURST] == [f"stranger {number}" for number in range(BURST)]
    assert texts[BURST:] == [
        "stranger of later (30 lines like this were left out before)",
        "stranger of much later (1 lines like this were left out before)",
        "the next",
    ]
