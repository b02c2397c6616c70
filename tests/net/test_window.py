"""The receive window against Jet's published behaviour (its ReceiverTaskletTest and SenderTaskletTest), and beyond."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import EdgeFlow
from shmjet.net.window import BLOCK, INITIAL_WINDOW, ReceiveWindow, int32, to_blocks

PERIOD = 100_000_000
START = 1_000_000_000


class Receiver:
    """A window whose clock is moved by hand."""

    def __init__(self, multiplier: int = 3) -> None:
        self.window = ReceiveWindow(PERIOD, multiplier)
        self.now = START
        self.acked = 0
        self.limit = self.window.limit_at(self.now, 0, starved=True)

    def period(self, blocks: int = 0, *, starved: bool = False, periods: float = 1) -> int:
        """Let a period pass in which `blocks` are acknowledged; returns the window's size after it."""
        self.now += int(PERIOD * periods)
        self.acked += blocks * BLOCK
        self.limit = self.window.limit_at(self.now, self.acked, starved=starved)
        return self.window.blocks


def test_the_first_call_only_remembers() -> None:
    receiver = Receiver()
    assert receiver.limit == INITIAL_WINDOW == 800
    assert receiver.window.blocks == 800


def test_without_data_ever_the_window_stays() -> None:
    receiver = Receiver()
    assert [receiver.period(starved=True) for _ in range(10)] == [800] * 10
    assert receiver.limit == 800


def test_a_steady_flow_settles_at_three_periods_worth() -> None:
    receiver = Receiver()
    sizes = [receiver.period(1000) for _ in range(20)]
    assert sizes[0] == 800 + (3000 - 800) // 2
    assert sizes == sorted(sizes)
    assert 2998 <= sizes[-1] <= 3000  # the last block is never halved away
    assert receiver.limit == 20 * 1000 + sizes[-1]


def test_a_stall_with_data_waiting_shrinks_by_halves_and_truncates_towards_zero() -> None:
    receiver = Receiver()
    sizes = [receiver.period() for _ in range(12)]
    assert sizes == [400, 200, 100, 50, 25, 13, 7, 4, 2, 1, 1, 1]


def test_a_starved_receiver_does_not_shrink() -> None:
    receiver = Receiver()
    for _ in range(5):
        receiver.period(1000)
    before = receiver.window.blocks
    assert receiver.period(starved=True) == before
    assert receiver.period(starved=True, periods=50) == before
    assert receiver.period(100, starved=True) == before  # a trickle after the lull, all of it taken at once


def test_it_recovers_after_a_stall() -> None:
    receiver = Receiver()
    for _ in range(12):
        receiver.period()
    assert receiver.window.blocks == 1
    sizes = [receiver.period(1000) for _ in range(12)]
    assert sizes[0] == 1 + (3000 - 1) // 2
    assert sizes[-1] >= 2998


def test_a_late_timer_counts_the_rate_and_not_the_call() -> None:
    receiver = Receiver()
    assert receiver.period(1000, periods=2) == 800 + (3 * 500 - 800) // 2


def test_a_rate_of_less_than_a_block_counts_as_one() -> None:
    receiver = Receiver()
    assert receiver.period(1, periods=10) == 800 + -(800 - 3) // 2 + 1  # target 3; -797 / 2 is -398, not -399


def test_the_multiplier_is_the_edges() -> None:
    receiver = Receiver(multiplier=10)
    for _ in range(30):
        receiver.period(500)
    assert 4998 <= receiver.window.blocks <= 5000


def test_two_calls_at_one_instant_change_nothing() -> None:
    receiver = Receiver()
    receiver.period(10)
    size = receiver.window.blocks
    assert receiver.window.limit_at(receiver.now, receiver.acked + BLOCK, starved=False) == 11 + size
    assert receiver.window.blocks == size


def test_a_limit_within_a_period_goes_by_the_window_as_it_is_and_is_not_remembered() -> None:
    receiver, same = Receiver(), Receiver()
    for one in (receiver, same):
        one.period(10)
    assert receiver.window.limit_from(receiver.acked + 5 * BLOCK) == 15 + receiver.window.blocks
    assert receiver.period(400) == same.period(400)


def test_a_flow_is_due_once_when_enough_has_been_taken() -> None:
    due: list[EdgeFlow] = []
    flow = EdgeFlow(False, None, due)
    flow.took(3, 1000)
    assert (flow.acked, flow.items, due) == (1000, 3, [])
    flow.renew_at = 1500
    flow.took(1, 499)
    assert due == []
    flow.took(1, 1)
    flow.took(1, 5000)
    assert due == [flow]
    flow.close()
    assert sys.getrefcount(due) == 2


@pytest.mark.parametrize("before", [(1 << 31) - 5, (1 << 32) - 5, (1 << 33) + (1 << 31) - 5])
def test_positions_wrap_around_32_bits(before: int) -> None:
    window, sender = ReceiveWindow(PERIOD), EdgeFlow(True)
    sender.bytes += before * BLOCK
    sender.limit = window.limit_at(START, before * BLOCK, starved=False)
    assert sender.is_open
    sender.bytes += 800 * BLOCK
    assert sender.is_open
    sender.bytes += BLOCK
    assert not sender.is_open
    sender.limit = window.limit_at(START + PERIOD, (before + 801) * BLOCK, starved=False)
    assert window.blocks == 800 + (3 * 801 - 800) // 2
    assert sender.is_open


def test_a_sender_may_send_one_block_before_the_first_word() -> None:
    sender = EdgeFlow(True)
    assert sender.is_open
    sender.bytes += BLOCK - 1
    assert sender.is_open
    sender.bytes += 1
    assert not sender.is_open
    sender.limit = 800
    assert sender.is_open


@given(st.integers(-(1 << 70), 1 << 70))
def test_int32_is_javas_cast(value: int) -> None:
    assert int32(value) == int.from_bytes((value & 0xFFFFFFFF).to_bytes(4, "little"), "little", signed=True)


@given(st.integers(0, 1 << 60))
def test_blocks_are_javas_shift(position: int) -> None:
    assert to_blocks(position) == int32(position >> 16)


@given(st.lists(st.tuples(st.integers(0, 4000), st.booleans()), min_size=1, max_size=40))
def test_what_may_be_under_way_is_bounded_by_the_largest_window(periods: list[tuple[int, bool]]) -> None:
    receiver, sender = Receiver(), EdgeFlow(True)
    sender.limit = receiver.limit
    largest = INITIAL_WINDOW
    for consumed, starved in periods:
        while sender.is_open:
            sender.bytes += BLOCK
        assert sender.bytes - receiver.acked <= (largest + 1) * BLOCK
        taken = min(consumed, (sender.bytes - receiver.acked) // BLOCK)
        largest = max(largest, receiver.period(taken, starved=starved))
        sender.limit = receiver.limit
        assert receiver.window.blocks >= 1 or not starved
