"""Durations and timestamps that numpy would take, wrap around or mix up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shmjet import Batch, session, sliding, tumbling
from shmjet.core.durations import LONGEST_MS, milliseconds, timestamp_of
from shmjet.core.event_timestamps import column_timestamps
from shmjet.data.errors import BatchError, ConfigError


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_a_timedelta64_is_neither_a_duration_nor_a_timestamp(unit: Any) -> None:
    odd: Any = np.timedelta64(5, unit)
    for window in (tumbling, session, lambda size: sliding(size, 1)):
        with pytest.raises(TypeError, match="must be seconds or a timedelta"):
            window(odd)
    with pytest.raises(TypeError, match="a timestamp must be an int"):
        timestamp_of(odd)


@pytest.mark.parametrize("size", [2**60, 10**400, 1e300])
def test_a_duration_that_is_too_long_says_so_in_few_words(size: float) -> None:
    with pytest.raises(ConfigError, match=r"tumbling: size is too long: .{1,80}$"):
        tumbling(size)


@pytest.mark.parametrize(
    "value", [np.datetime64(1 << 62, "s"), np.datetime64(10**10, "Y"), np.datetime64(-(1 << 60), "h")]
)
def test_a_datetime64_beyond_63_bits_of_milliseconds_does_not_wrap_around(value: Any) -> None:
    with pytest.raises(OverflowError, match="63 bits"):
        timestamp_of(value)
    with pytest.raises(BatchError, match=r"'at'.*63 bits"):
        column_timestamps(Batch({"at": np.array([value]), "n": [1]}), "at")


def test_datetime64_of_all_units_are_rounded_down() -> None:
    for unit, per_ms in (("ms", 1), ("us", 10**3), ("ns", 10**6), ("ps", 10**9)):
        assert timestamp_of(np.datetime64(-1, unit)) == -1
        assert timestamp_of(np.datetime64(5 * per_ms, unit)) == 5
    assert timestamp_of(np.datetime64(-3, "s")) == -3_000
    assert timestamp_of(np.datetime64(LONGEST_MS, "ms")) == LONGEST_MS
    assert timestamp_of(np.datetime64("2026-11")) == 1_793_491_200_000


def test_numbers_of_numpy_are_seconds() -> None:
    assert milliseconds("size", np.float32(0.5)) == 500
    assert milliseconds("size", np.int8(2)) == 2_000


def test_durations_of_any_length_beyond_the_longest_are_refused_by_name() -> None:
    for duration in (1e17, 1e306, 1e308, 10**400, np.float64(1e308)):
        with pytest.raises(ConfigError, match="ttl is too long"):
            milliseconds("ttl", duration)
    for duration in (-1e308, -(10**400)):
        with pytest.raises(ConfigError, match="ttl must be at least"):
            milliseconds("ttl", duration)
