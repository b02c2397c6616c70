"""The outbox: high-water marks, all or nothing, and the rules of a refused item."""

import sys

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shmjet.core import Outbox, OutboxError, Watermark
from shmjet.core.outbox import DEFAULT_HIGH_WATER_MARK, differs
from shmjet.data.columnar import Columnar
from tests.examples import examples

MARKS = (1, 3, 5)
ordinals = st.sampled_from([-1, 0, 1, 2, (0, 2), [1], (2, 1, 0)])


class OutboxAgainstModel(RuleBasedStateMachine):
    """A processor that keeps to the rules, against a model with one list and one bound per bucket."""

    def __init__(self):
        super().__init__()
        self.outbox = Outbox(MARKS)
        self.model = [[] for _ in MARKS]
        self.bounds = list(MARKS)
        self.refused = False
        self.pending = None
        self.next_item = 0

    def fresh(self, count):
        self.next_item += count
        return list(range(self.next_item - count, self.next_item))

    def place(self, items, ordinal):
        """Return how many the model takes, and take them."""
        named = range(3) if ordinal == -1 else [ordinal] if isinstance(ordinal, int) else ordinal
        count = min(len(items), max(0, min(self.bounds[i] - len(self.model[i]) for i in named)))
        for i in named:
            self.model[i] += items[:count]
        return count

    @precondition(lambda self: not self.refused)
    @rule(ordinal=ordinals)
    def offer(self, ordinal):
        item, ordinal = self.pending or (*self.fresh(1), ordinal)
        accepted = self.outbox.offer(item, ordinal)
        assert accepted == (self.place([item], ordinal) == 1)
        self.refused = not accepted
        self.pending = None if accepted else (item, ordinal)

    @precondition(lambda self: not self.refused)
    @rule(ordinal=ordinals, count=st.integers(0, 8), skipped=st.integers(0, 2), kind=st.sampled_from([list, tuple]))
    def offer_all(self, ordinal, count, skipped, kind):
        items = self.fresh(count)
        if self.pending is not None:
            item, ordinal = self.pending
            items = [item, *items]
        accepted = self.outbox.offer_all(kind([*(["skipped"] * skipped), *items]), ordinal, skipped)
        assert accepted == self.place(items, ordinal)
        self.refused = accepted < len(items)
        if self.refused:
            self.pending = items[accepted], ordinal
        elif items:
            self.pending = None

    @rule(limit=st.none() | st.integers(1, 4))
    def begin_callback(self, limit):
        self.outbox.limit = limit
        self.outbox.begin_callback()
        self.refused = False
        sizes = [len(bucket) for bucket in self.model]
        self.bounds = [m if limit is None else min(m, s + limit) for m, s in zip(MARKS, sizes, strict=True)]

    @rule(bucket=st.integers(0, 2), count=st.integers(1, 5), replace=st.booleans())
    def engine_drains(self, bucket, count, replace):
        if replace:
            self.outbox.buckets[bucket] = []
            self.model[bucket] = []
        else:
            del self.outbox.buckets[bucket][:count]
            del self.model[bucket][:count]

    @precondition(lambda self: self.refused)
    @rule(same=st.booleans())
    def offering_after_a_refusal_in_the_same_callback_is_an_error(self, same):
        item, ordinal = self.pending if same else ("other", 0)
        with pytest.raises(OutboxError, match="in the same callback"):
            self.outbox.offer(item, ordinal)

    @precondition(lambda self: self.pending is not None and not self.refused)
    @rule(wrong_ordinal=st.booleans())
    def offering_something_else_next_is_an_error(self, wrong_ordinal):
        item, ordinal = self.pending
        with pytest.raises(OutboxError):
            if wrong_ordinal:
                self.outbox.offer(item, 0 if ordinal != 0 else 1)
            else:
                self.outbox.offer_all(["other", item], ordinal)

    @invariant()
    def looks_like_the_model(self):
        assert self.outbox.buckets == self.model
        assert self.outbox.has_unfinished_item == (self.pending is not None)
        if self.refused:
            assert self.outbox.room() == 0
        else:
            rooms = [max(0, b - len(m)) for b, m in zip(self.bounds, self.model, strict=True)]
            assert [self.outbox.room(i) for i in range(3)] == rooms
            assert self.outbox.room() == min(rooms)


TestOutboxAgainstModel = OutboxAgainstModel.TestCase
TestOutboxAgainstModel.settings = examples(60)


@pytest.mark.parametrize("marks", [[], [4], [4, 4]])
def test_none_is_never_an_item(marks):
    outbox = Outbox(marks)
    with pytest.raises(TypeError, match="None is never an item"):
        outbox.offer(None)
    with pytest.raises(TypeError, match="None is never an item"):
        outbox.offer_all([1, None])
    with pytest.raises(TypeError, match="None is never an item"):
        outbox.offer_all((1, None), -1, 1)
    assert not any(outbox.buckets)


def test_a_none_that_would_be_refused_is_an_error_at_once():
    outbox = Outbox([1])
    with pytest.raises(TypeError):
        outbox.offer_all([1, None])
    outbox = Outbox([1])
    outbox.offer(1)
    with pytest.raises(TypeError):
        outbox.offer(None)


def test_the_callers_list_stays_the_callers():
    outbox, items = Outbox([9]), [1, 2]
    outbox.offer_all(items)
    outbox.buckets[0].append(3)
    assert items == [1, 2]


def test_watermarks_keep_their_place_among_items():
    outbox = Outbox([9])
    outbox.offer_all([1, Watermark(5), 2])
    assert outbox.buckets == [[1, Watermark(5), 2]]


@pytest.mark.parametrize("ordinal", [2, -2, (0, 2)])
def test_an_unknown_ordinal_is_named(ordinal):
    with pytest.raises(OutboxError, match=r"no outbound ordinal -?2 \(there are 0\.\.1\); -1 means all"):
        Outbox([1, 1]).offer("item", ordinal)


def test_ordinals_from_an_iterator_and_twice_are_each_served_once():
    outbox = Outbox([9, 9])
    assert outbox.offer("a", iter([1]))
    assert outbox.offer("b", [0, 1, 0])
    assert outbox.buckets == [["b"], ["a", "b"]]


def test_a_list_of_ordinals_that_changes_after_a_refusal_is_noticed():
    outbox, ordinals = Outbox([0, 9]), [0]
    assert not outbox.offer("a", ordinals)
    ordinals[0] = 1
    outbox.begin_callback()
    with pytest.raises(OutboxError, match="offer it to the same ordinals"):
        outbox.offer("a", ordinals)


def test_without_buckets_items_to_all_are_dropped_within_a_bound():
    outbox = Outbox([])
    outbox.begin_callback()
    assert outbox.bucket_count == 0
    assert outbox.offer_all(range(3000)) == DEFAULT_HIGH_WATER_MARK
    assert outbox.accepted == DEFAULT_HIGH_WATER_MARK
    outbox.begin_callback()
    assert outbox.offer_all(range(2048, 3000)) == 952
    with pytest.raises(OutboxError, match="the vertex has no outbound edge"):
        outbox.offer("item", 0)


def test_without_buckets_the_limit_holds_as_well():
    outbox = Outbox([])
    outbox.limit = 2
    outbox.begin_callback()
    assert [outbox.offer("a"), outbox.offer("b"), outbox.offer("c")] == [True, True, False]


def test_accepted_counts_what_this_callback_added():
    outbox = Outbox([9, 9])
    outbox.offer("kept", 0)
    outbox.begin_callback()
    outbox.offer_all([1, 2, 3], 1)
    outbox.offer("x", 0)
    assert outbox.accepted == 3


def test_an_unbounded_bucket_takes_everything():
    outbox = Outbox([sys.maxsize])
    assert outbox.offer_all(list(range(10_000))) == 10_000


def test_a_forgotten_item_is_named():
    outbox = Outbox([1])
    outbox.offer("first")
    outbox.require_finished("complete()")
    outbox.offer("forgotten")
    with pytest.raises(
        OutboxError, match=r"complete\(\) is through, but item 'forgotten' was refused .* never offered"
    ):
        outbox.require_finished("complete()")


def test_a_generator_cannot_be_offered_as_a_whole():
    with pytest.raises(TypeError):
        Outbox([1]).offer_all(iter([1, 2]))


class Plain:
    """Compares by identity."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: 1 + 2**70,
        lambda: "text"[:3],
        lambda: float("nan"),
        lambda: (1, [float("nan"), {"k": float("nan")}]),
        lambda: np.array([1.0, 2.0]),
        Plain,
        lambda: ("key", Plain()),
    ],
)
def test_an_item_that_was_computed_afresh_counts_as_the_same(make):
    assert not differs(make(), make())


@pytest.mark.parametrize(
    ("refused", "offered"),
    [(1, 2), (1, 1.0), (1, True), ("a", "b"), ((1, 2), (1,)), ((1, 2), (1, 3)), ([1], (1,)), ({"a": 1}, {"a": 2})],
)
def test_an_item_that_is_certainly_another_one_is_told_apart(refused, offered):
    assert differs(refused, offered)


def test_a_callback_emits_no_more_batches_than_should_wait_in_memory() -> None:
    class Heavy(Columnar):
        nbytes = 1 << 20

    outbox = Outbox([2048])
    outbox.limit, outbox.overdue = 1, lambda: False
    outbox.begin_callback()
    count = 0
    while outbox.offer(Heavy()):
        count += 1
    assert 8 <= count <= 64


def test_a_list_that_is_given_is_taken_whole_where_it_fits_and_copied_where_not() -> None:
    outbox, items = Outbox([4]), [1, 2, 3]
    assert outbox.give(items) == 3
    assert outbox.buckets[0] is items
    assert outbox.give([4, 5]) == 1
    outbox.buckets[0] = []
    outbox.begin_callback()
    with pytest.raises(OutboxError, match="item 5"):
        outbox.give([6])
    assert outbox.give([5], 0) == 1
    with pytest.raises(TypeError, match="None is never an item"):
        Outbox([4]).give([None])
    twice = Outbox([2, 2])
    assert twice.give([1, 2, 3], [0, 1]) == 2
    assert twice.buckets == [[1, 2], [1, 2]]
