"""Coalescing of watermarks, by example and against a naive model."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import Coalescer
from shmjet.core import IDLE, Watermark, WatermarkCoalescer, WatermarkError


def test_the_lowest_watermark_is_passed_on_when_it_rises():
    coalescer = WatermarkCoalescer(2)
    assert coalescer.observe_watermark(0, Watermark(5)) is None
    assert coalescer.observe_watermark(1, Watermark(3)) == Watermark(3)
    assert coalescer.observe_watermark(1, Watermark(4)) == Watermark(4)
    assert coalescer.observe_watermark(1, Watermark(9)) == Watermark(5)
    assert (coalescer.coalesced, coalescer.top_observed) == (Watermark(5), Watermark(9))


def test_a_single_input_passes_everything_on():
    coalescer = WatermarkCoalescer(1)
    assert [coalescer.observe_watermark(0, Watermark(n)) for n in (-5, 0, 7)] == [Watermark(n) for n in (-5, 0, 7)]


def test_an_input_that_ends_holds_nobody_back():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, Watermark(5))
    assert coalescer.input_done(1) == Watermark(5)


def test_the_end_of_all_inputs_gives_nothing():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, Watermark(5))
    coalescer.observe_watermark(1, Watermark(5))
    assert coalescer.input_done(0) is None
    assert coalescer.input_done(1) is None
    assert coalescer.pending() is None


def test_an_idle_input_is_left_out_until_it_speaks_again():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, Watermark(5))
    assert coalescer.observe_watermark(1, IDLE) == Watermark(5)
    coalescer.observe_event(1)
    assert coalescer.observe_watermark(0, Watermark(8)) is None
    assert coalescer.observe_watermark(1, Watermark(6)) == Watermark(6)


def test_when_all_go_idle_the_top_watermark_comes_first_and_idle_once_behind_it():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, Watermark(9))
    coalescer.observe_watermark(1, Watermark(3))
    assert coalescer.observe_watermark(0, IDLE) is None
    assert coalescer.observe_watermark(1, IDLE) == Watermark(9)
    assert coalescer.pending() == IDLE
    assert coalescer.pending() is None
    assert coalescer.observe_watermark(1, IDLE) is None


def test_when_all_go_idle_without_news_only_idle_is_passed_on():
    coalescer = WatermarkCoalescer(2)
    assert coalescer.observe_watermark(0, IDLE) is None
    assert coalescer.observe_watermark(1, IDLE) == IDLE
    assert coalescer.pending() is None
    assert coalescer.observe_watermark(1, IDLE) is None


def test_an_event_takes_a_pending_idle_back():
    coalescer = WatermarkCoalescer(1)
    coalescer.observe_watermark(0, Watermark(1))
    assert coalescer.observe_watermark(0, IDLE) == IDLE
    coalescer.observe_event(0)
    assert coalescer.observe_watermark(0, Watermark(2)) == Watermark(2)
    assert coalescer.observe_watermark(0, IDLE) == IDLE


def test_the_last_active_input_ending_among_idle_ones_means_idle():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, IDLE)
    assert coalescer.input_done(1) == IDLE


def outcome(call, *args):
    """What a call returns, a watermark as its timestamp, or the text of its error."""
    try:
        found = call(*args)
    except WatermarkError as error:
        return str(error)
    return found.timestamp if isinstance(found, Watermark) else found


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from("eewwwidp"), st.integers(0, 4), st.integers(-9, 9))))
def test_the_engines_coalescer_does_what_this_one_does(count, steps):
    model, native = WatermarkCoalescer(count), Coalescer(count, WatermarkError)
    for what, i, timestamp in steps:
        i %= count
        mark = IDLE if what == "i" else Watermark(timestamp)
        if what in "wi":
            wanted, found = (
                outcome(model.observe_watermark, i, mark),
                outcome(native.observe_watermark, i, mark.timestamp),
            )
        else:
            name, args = {"e": ("observe_event", [i]), "d": ("input_done", [i]), "p": ("pending", [])}[what]
            wanted, found = (outcome(getattr(coalescer, name), *args) for coalescer in (model, native))
        assert found == wanted
        assert (native.coalesced, native.top_observed) == (
            model.coalesced and model.coalesced.timestamp,
            model.top_observed and model.top_observed.timestamp,
        )
        native = pickle.loads(pickle.dumps(native))


def test_the_engines_coalescer_names_the_input_that_holds_the_others_back():
    native = Coalescer(3, WatermarkError)
    assert native.slowest == (0, None)
    for i, timestamp in enumerate([5, 3, 9]):
        native.observe_watermark(i, timestamp)
    assert (native.slowest, native.is_idle) == ((1, 3), False)
    native.observe_watermark(1, IDLE.timestamp)
    native.input_done(0)
    assert native.slowest == (2, 9)
    native.observe_watermark(2, IDLE.timestamp)
    assert (native.slowest, native.is_idle) == ((-1, None), True)


class Compared(int):
    """Counts how often such numbers are compared."""

    times = 0

    def __lt__(self, other):
        Compared.times += 1
        return int(self) < int(other)

    def __le__(self, other):
        Compared.times += 1
        return int(self) <= int(other)

    def __gt__(self, other):
        Compared.times += 1
        return int(self) > int(other)

    def __ge__(self, other):
        Compared.times += 1
        return int(self) >= int(other)


def test_thousands_of_inputs_are_gone_through_only_when_the_watermark_rises():
    count = 3000
    coalescer = WatermarkCoalescer(count)
    Compared.times = 0
    for i in range(count):
        assert (coalescer.observe_watermark(i, Watermark(Compared(7))) is not None) == (i == count - 1)
    for i in range(count):
        coalescer.observe_event(i)
        assert coalescer.input_done(i) is None
    assert count <= Compared.times <= 20 * count


def test_an_input_ends_once():
    coalescer = WatermarkCoalescer(2)
    coalescer.input_done(1)
    with pytest.raises(WatermarkError, match="input 1 has ended, yet its end came once more"):
        coalescer.input_done(1)


def test_an_input_that_has_ended_brings_no_item():
    coalescer = WatermarkCoalescer(2)
    coalescer.input_done(1)
    coalescer.observe_event(0)
    with pytest.raises(WatermarkError, match="input 1 has ended, yet an item came on it"):
        coalescer.observe_event(1)


def test_watermarks_of_an_input_must_rise():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(1, Watermark(5))
    with pytest.raises(WatermarkError, match="input 1 brought 5 after 5"):
        coalescer.observe_watermark(1, Watermark(5))
    coalescer.input_done(1)
    with pytest.raises(WatermarkError, match="input 1 has ended"):
        coalescer.observe_watermark(1, IDLE)


@given(st.integers(1, 4), st.data())
def test_what_is_passed_on_rises_and_never_passes_an_active_input(count, data):
    coalescer = WatermarkCoalescer(count)
    tops, idle, live, last = [None] * count, [False] * count, [True] * count, None
    for _ in range(data.draw(st.integers(0, 30))):
        candidates = [i for i in range(count) if live[i]]
        if not candidates:
            break
        i = data.draw(st.sampled_from(candidates))
        event = data.draw(st.sampled_from(["event", "watermark", "watermark", "idle", "done"]))
        out = []
        if event == "event":
            coalescer.observe_event(i)
            idle[i] = False
        elif event == "watermark":
            tops[i] = (tops[i] or 0) + data.draw(st.integers(1, 5))
            idle[i] = False
            out = [coalescer.observe_watermark(i, Watermark(tops[i]))]
        elif event == "idle":
            idle[i] = True
            out = [coalescer.observe_watermark(i, IDLE)]
        else:
            live[i] = False
            out = [coalescer.input_done(i)]
        active = [tops[j] for j in range(count) if live[j] and not idle[j]]
        for mark in [*out, coalescer.pending()]:
            if mark is None:
                continue
            if mark == IDLE:
                assert active == []
                continue
            assert last is None or mark.timestamp > last
            last = mark.timestamp
            assert all(top is not None and last <= top for top in active)
        if active and None not in active:
            assert last is not None
            assert last >= min(active) or event == "event"
