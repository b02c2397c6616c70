"""The inbox against a deque."""

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shmjet.core import Inbox
from tests.examples import examples


class InboxAgainstDeque(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.inbox = Inbox()
        self.model = deque()

    @precondition(lambda self: not self.model)
    @rule(items=st.lists(st.integers(), max_size=20))
    def fill(self, items):
        self.inbox.fill(list(items))
        self.model.extend(items)

    @rule()
    def poll(self):
        assert self.inbox.poll() == (self.model.popleft() if self.model else None)

    @precondition(lambda self: self.model)
    @rule()
    def remove(self):
        assert self.inbox.remove() == self.model.popleft()

    @rule(limit=st.none() | st.integers(0, 10))
    def take(self, limit):
        count = len(self.model) if limit is None else min(limit, len(self.model))
        assert self.inbox.take(limit) == [self.model.popleft() for _ in range(count)]

    @rule(limit=st.none() | st.integers(0, 10))
    def drain_to(self, limit):
        target = ["before"]
        count = self.inbox.drain_to(target, limit)
        assert target == ["before", *(self.model.popleft() for _ in range(count))]

    @rule()
    def drain(self):
        seen = []
        assert self.inbox.drain(seen.append) == len(seen)
        assert seen == list(self.model)
        self.model.clear()

    @rule()
    def clear(self):
        self.inbox.clear()
        self.model.clear()

    @invariant()
    def looks_like_the_model(self):
        assert len(self.inbox) == len(self.model)
        assert bool(self.inbox) == bool(self.model)
        assert list(self.inbox) == list(self.model)
        assert self.inbox.peek() == (self.model[0] if self.model else None)


TestInboxAgainstDeque = InboxAgainstDeque.TestCase
TestInboxAgainstDeque.settings = examples(60)


def test_a_whole_batch_is_given_away_without_a_copy():
    inbox, items = Inbox(), [1, 2, 3]
    inbox.fill(items)
    assert inbox.take() is items


def test_filling_over_items_that_are_left_is_refused():
    inbox = Inbox()
    inbox.fill([1])
    with pytest.raises(ValueError, match="holds 1 items"):
        inbox.fill([2])


def test_removing_from_an_empty_inbox_is_an_error():
    with pytest.raises(IndexError, match="empty inbox"):
        Inbox().remove()


def test_a_function_that_raises_while_draining_does_not_bring_items_back():
    inbox = Inbox()
    inbox.fill([1, 2])
    with pytest.raises(ZeroDivisionError):
        inbox.drain(lambda item: 1 / 0)
    assert not inbox


def test_text_form_shows_what_is_left():
    inbox = Inbox()
    inbox.fill([1, 2])
    inbox.poll()
    assert repr(inbox) == "Inbox([2])"
