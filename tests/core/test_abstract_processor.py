"""AbstractProcessor: one item at a time, emission over as many calls as the outbox needs."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import AbstractProcessor, Inbox, Outbox, ProcessorContext, ProcessorError, Traverser, traverse


def ready(processor, *marks):
    outbox = Outbox(marks or (2048,))
    processor.init(outbox, ProcessorContext())
    return outbox


def inbox_of(*items):
    inbox = Inbox()
    inbox.fill(list(items))
    return inbox


def drained(outbox):
    items = [list(bucket) for bucket in outbox.buckets]
    outbox.buckets[:] = [[] for _ in outbox.buckets]
    outbox.begin_callback()
    return items[0] if len(items) == 1 else items


class ByOrdinal(AbstractProcessor):
    def try_process1(self, item):
        return self.try_emit(("one", item))

    def try_process_any(self, ordinal, item):
        return self.try_emit((ordinal, item))


@pytest.mark.parametrize(("ordinal", "tag"), [(0, 0), (1, "one"), (4, 4), (5, 5), (17, 17)])
def test_each_ordinal_has_its_method_or_the_catch_all(ordinal, tag):
    processor = ByOrdinal()
    outbox = ready(processor)
    processor.process(ordinal, inbox_of("a", "b"))
    assert drained(outbox) == [(tag, "a"), (tag, "b")]


@pytest.mark.parametrize("ordinal", [0, 4, 5])
def test_an_item_that_nobody_handles_is_an_error(ordinal):
    processor = AbstractProcessor()
    ready(processor)
    with pytest.raises(ProcessorError, match=f"inbound ordinal {ordinal} but implements neither"):
        processor.process(ordinal, inbox_of("a"))


def test_items_stay_in_the_inbox_from_the_one_that_was_refused():
    processor = ByOrdinal()
    outbox, inbox = ready(processor, 2), inbox_of("a", "b", "c")
    processor.process(0, inbox)
    assert list(inbox) == ["c"]
    assert drained(outbox) == [(0, "a"), (0, "b")]
    processor.process(0, inbox)
    assert not inbox
    assert drained(outbox) == [(0, "c")]


def test_a_forgotten_return_value_is_an_error():
    class Forgetful(AbstractProcessor):
        def try_process0(self, item):
            self.try_emit(item)

    processor = Forgetful()
    ready(processor)
    with pytest.raises(ProcessorError, match="Forgetful returned None for an item of inbound ordinal 0; return True"):
        processor.process(0, inbox_of("a"))


def test_an_exception_leaves_the_item_that_caused_it_first():
    class Dividing(AbstractProcessor):
        def try_process0(self, item):
            return self.try_emit(1 / item)

    processor, inbox = Dividing(), inbox_of(1, 0, 2)
    ready(processor)
    with pytest.raises(ZeroDivisionError):
        processor.process(0, inbox)
    assert list(inbox) == [0, 2]


def test_a_forgotten_super_init_is_named():
    class NoSuper(AbstractProcessor):
        def init(self, outbox, context):
            pass

        def complete(self):
            return self.try_emit(1)

    processor = NoSuper()
    ready(processor)
    with pytest.raises(ProcessorError, match=r"call super\(\)\.init\(outbox, context\)"):
        processor.complete()


def test_an_overridden_try_emit_is_kept():
    class Doubling(AbstractProcessor):
        def try_process0(self, item):
            return self.try_emit(item)

        def try_emit(self, item, ordinal=-1):
            return super().try_emit(item * 2, ordinal)

    processor = Doubling()
    outbox = ready(processor)
    processor.process(0, inbox_of(1))
    assert drained(outbox) == [2]


SOURCES = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "generator": lambda items: (item for item in items),
    "traverser": traverse,
    "lazy traverser": lambda items: traverse(items).flat_map(lambda item: [item]),
}


@pytest.mark.parametrize("kind", SOURCES)
@given(count=st.integers(0, 12), room=st.integers(1, 5))
def test_a_traverser_is_emitted_whole_and_in_order_over_any_number_of_calls(kind, count, room):
    source = SOURCES[kind](range(count))
    processor = AbstractProcessor()
    outbox = ready(processor, room)
    emitted, calls = [], 0
    while not processor.emit_from_traverser(source):
        emitted += drained(outbox)
        calls += 1
        assert calls <= count + 1
    assert emitted + drained(outbox) == list(range(count))


def test_a_traverser_is_drawn_from_only_as_far_as_there_is_room():
    drawn = []
    source = traverse(itertools.count()).peek(drawn.append)
    processor = AbstractProcessor()
    outbox = ready(processor, 3)
    assert not processor.emit_from_traverser(source)
    assert not processor.emit_from_traverser(source)
    assert drawn == drained(outbox) == [0, 1, 2]


def test_a_resuming_traverser_is_through_for_now_and_goes_on_later():
    class Feed(Traverser):
        items = []

        def next(self):
            return self.items.pop(0) if self.items else None

    feed, processor = Feed(), AbstractProcessor()
    outbox = ready(processor)
    assert processor.emit_from_traverser(feed)
    feed.items += [1, 2]
    assert processor.emit_cooperatively(feed)
    assert drained(outbox) == [1, 2]


def test_a_list_can_be_emitted_again_once_it_is_through():
    processor, items = AbstractProcessor(), [1, 2]
    outbox = ready(processor)
    assert processor.emit_from_traverser(items)
    assert processor.emit_from_traverser(items)
    assert drained(outbox) == [1, 2, 1, 2]


def test_a_new_generator_in_each_call_is_an_error_and_no_endless_loop():
    processor = AbstractProcessor()
    ready(processor, 2)
    assert not processor.emit_from_traverser(i for i in range(9))
    with pytest.raises(ProcessorError, match="got another object before the last one was through"):
        processor.emit_from_traverser(i for i in range(9))


def test_traversers_for_different_ordinals_may_take_turns():
    processor = AbstractProcessor()
    outbox = ready(processor, 1, 1)
    left, right = [1, 2], (3, 4)
    assert not processor.emit_from_traverser(left, 0)
    assert not processor.emit_from_traverser(right, [1])
    assert drained(outbox) == [[1], [3]]
    assert not processor.emit_from_traverser(left, 0)
    assert not processor.emit_from_traverser(right, [1])
    assert drained(outbox) == [[2], [4]]
    assert processor.emit_from_traverser(left, 0)
    assert processor.emit_from_traverser(right, [1])


def test_a_none_in_a_traverser_is_an_error():
    processor = AbstractProcessor()
    ready(processor)
    with pytest.raises(TypeError, match="None is never an item"):
        processor.emit_from_traverser([1, None])


class Mapper(AbstractProcessor):
    def __init__(self, fn, ordinal=-1):
        self.calls = 0
        self.mapper = self.flat_mapper(self.counted(fn), ordinal)

    def counted(self, fn):
        def call(item):
            self.calls += 1
            return fn(item)

        return call

    def try_process0(self, item):
        return self.mapper.try_process(item)


RESULTS = {
    "list": lambda n: [n] * n,
    "tuple": lambda n: (n,) * n,
    "generator": lambda n: (n for _ in range(n)),
    "iterator": lambda n: itertools.repeat(n, n),
    "traverser": lambda n: traverse([n] * n),
    "set": lambda n: {(n, i) for i in range(n)},
    "dict": lambda n: {(n, i): i for i in range(n)},
}


@pytest.mark.parametrize("kind", RESULTS)
@given(items=st.lists(st.integers(0, 6), max_size=6), room=st.integers(1, 5))
def test_a_flat_mapper_emits_all_results_and_calls_the_function_once_per_item(kind, items, room):
    processor = Mapper(RESULTS[kind])
    outbox, inbox = ready(processor, room), inbox_of(*items)
    emitted = []
    for _ in range(100):
        if not inbox:
            break
        processor.process(0, inbox)
        emitted += drained(outbox)
    assert not inbox
    assert processor.calls == len(items)
    assert emitted == [result for item in items for result in RESULTS[kind](item)]


def test_a_flat_mapper_may_have_its_own_ordinal():
    processor = Mapper(lambda n: [n], ordinal=1)
    outbox = ready(processor, 9, 9)
    processor.process(0, inbox_of(1, 2))
    assert drained(outbox) == [[], [1, 2]]


def test_an_infinite_generator_is_suspended_when_the_outbox_is_full():
    processor = Mapper(lambda n: itertools.count(n))
    outbox, inbox = ready(processor, 3), inbox_of(5)
    processor.process(0, inbox)
    assert drained(outbox) == [5, 6, 7]
    processor.process(0, inbox)
    assert drained(outbox) == [8, 9, 10]
    assert list(inbox) == [5]


@pytest.mark.parametrize("result", [None, 7])
def test_a_flat_map_function_that_returns_no_iterable_is_named(result):
    processor = Mapper(lambda n: result)
    ready(processor)
    with pytest.raises(TypeError, match=f"call returned {result} .* but a flat-map function returns an iterable"):
        processor.process(0, inbox_of(1))


@pytest.mark.parametrize("make", [lambda n: [n, None], lambda n: (n, None), lambda n: iter([n, None])])
def test_a_none_among_the_results_is_an_error(make):
    processor = Mapper(make)
    ready(processor)
    with pytest.raises(TypeError, match="None is never an item"):
        processor.process(0, inbox_of(1))


def test_saved_entries_are_restored_one_by_one():
    class Counting(AbstractProcessor):
        def __init__(self):
            self.counts = {}

        def restore(self, key, value):
            self.counts[key] = value

    processor = Counting()
    ready(processor)
    processor.restore_from_snapshot(inbox_of(("a", 1), ("b", 2)))
    assert processor.counts == {"a": 1, "b": 2}
    with pytest.raises(ProcessorError, match=r"does not implement restore\(key, value\)"):
        AbstractProcessor().restore_from_snapshot(inbox_of(("a", 1)))


def test_the_logger_is_that_of_the_context():
    processor = AbstractProcessor()
    ready(processor)
    assert processor.logger is processor.context.logger
