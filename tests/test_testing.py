"""The check of processors accepts what keeps the contract and refuses what breaks it."""

import itertools
import threading

import pytest

from shmjet.core import (
    IDLE,
    AbstractProcessor,
    BroadcastKey,
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    Watermark,
)
from shmjet.testing import MODES, TestContext, TestGrid, TestInbox, TestOutbox, mode_run, verify_processor


class Doubler(AbstractProcessor):
    def try_process0(self, item):
        return self.try_emit(item * 2)


class Successors(AbstractProcessor):
    def __init__(self):
        self.mapper = self.flat_mapper(lambda n: (m for m in (n, n + 1)))

    def try_process0(self, item):
        return self.mapper.try_process(item)


class Numbers(AbstractProcessor):
    next = 0

    def complete(self):
        while self.next < 5:
            if not self.try_emit(self.next):
                return False
            self.next += 1
        return True

    def save_to_snapshot(self):
        return self.try_emit_to_snapshot(BroadcastKey(self.context.global_index), self.next)

    def restore(self, key, value):
        if key == BroadcastKey(self.context.global_index):
            self.next = value


class Sum(AbstractProcessor):
    def __init__(self):
        self.total = 0

    def save_to_snapshot(self):
        return self.try_emit_to_snapshot(BroadcastKey("total"), self.total)

    def restore(self, key, value):
        self.total = value

    def try_process_any(self, ordinal, item):
        self.total += item
        return True

    def complete(self):
        return self.try_emit(self.total)


@pytest.mark.parametrize(
    ("supplier", "inputs", "output"),
    [
        (Doubler, [[1, 2, 3]], [2, 4, 6]),
        (Doubler, [[]], []),
        (Successors, [[1, 5]], [1, 2, 5, 6]),
        (Numbers, [], [0, 1, 2, 3, 4]),
        (Sum, [[1, 2], [3], [4]], [10]),
        (lambda: Sum(), [[1]], [1]),
        (ProcessorSupplier.of(Sum), [[1]], [1]),
        (ProcessorMetaSupplier.force_total_parallelism_one(Sum), [[1]], [1]),
    ],
)
def test_processors_that_keep_the_contract_pass(supplier, inputs, output):
    verify_processor(supplier).inputs(*inputs).expect(output)


def test_a_wrong_output_is_shown_with_its_mode():
    with pytest.raises(
        AssertionError, match=r"one item at a time: wrong output on ordinal 0\n  expected \[3\].*\n  got +\[2\]"
    ):
        verify_processor(Doubler).inputs([1]).expect([3])


def test_order_matters_unless_said_otherwise():
    with pytest.raises(AssertionError):
        verify_processor(Doubler).inputs([1, 2]).expect([4, 2])
    verify_processor(Doubler).inputs([1, 2]).any_order().expect([4, 2])
    verify_processor(Doubler).inputs([[1], [2]]).any_order().expect([[2, 2], [1, 1]])
    with pytest.raises(AssertionError):
        verify_processor(Doubler).inputs([[1], [2]]).any_order().expect([[2, 2], [2, 2]])
    with pytest.raises(AssertionError):
        verify_processor(Doubler).inputs([1]).any_order().expect([2, 2])


def test_a_checker_of_ones_own_decides():
    verify_processor(Doubler).inputs([1, 2]).output_checker(lambda expected, actual: sum(actual) == 6).expect([])


def test_a_processor_that_drops_a_refused_item_fails():
    class Dropping(AbstractProcessor):
        def try_process0(self, item):
            self.try_emit(item)
            return True

    with pytest.raises(AssertionError, match="refused"):
        verify_processor(Dropping).inputs([1, 2, 3]).expect([1, 2, 3])


def test_a_processor_that_drops_the_last_refused_item_fails():
    class DroppingAtTheEnd(Processor):
        def complete(self):
            self.outbox.offer("only")
            return True

    with pytest.raises(AssertionError, match=r"complete\(\) is through, but item 'only' was refused"):
        verify_processor(DroppingAtTheEnd).expect(["only"])


def test_a_processor_that_clears_its_inbox_when_refused_fails():
    class Clearing(Processor):
        def process(self, ordinal, inbox):
            self.outbox.offer_all(inbox.take())

    with pytest.raises(AssertionError, match="refused"):
        verify_processor(Clearing).inputs([1, 2, 3]).expect([1, 2, 3])


def test_a_processor_that_offers_on_after_a_refusal_fails():
    class Pushing(Processor):
        def process(self, ordinal, inbox):
            while inbox and not self.outbox.offer(inbox.peek()):
                pass
            inbox.remove()

    with pytest.raises(AssertionError, match="in the same callback"):
        verify_processor(Pushing).inputs([1, 2, 3]).expect([1, 2, 3])


def test_a_processor_that_offers_again_what_was_accepted_fails_and_does_not_go_on_for_ever():
    class Twice(AbstractProcessor):
        def try_process0(self, item):
            return self.try_emit(item) and self.try_emit(item)

    with pytest.raises(AssertionError, match=r"outbox of one slot, .*on ordinal 0 where 4 are expected, and no end"):
        verify_processor(Twice).inputs([1, 2]).expect([1, 1, 2, 2])


def test_a_processor_that_returns_without_progress_fails():
    class Idle(Processor):
        def process(self, ordinal, inbox):
            pass

    with pytest.raises(AssertionError, match=r"process\(0, inbox\) returned without progress: it took nothing"):
        verify_processor(Idle).inputs([1]).expect([])


@pytest.mark.parametrize("callback", ["complete", "try_process", "complete_edge", "try_process_watermark"])
def test_a_callback_that_never_gets_through_fails(callback):
    stuck = type("Stuck", (Doubler,), {callback: lambda self, *args: False})
    with pytest.raises(AssertionError, match=rf"{callback}\(.*\) returned without progress"):
        verify_processor(stuck).inputs([1, Watermark(1)]).expect([2, Watermark(1)])


def test_a_callback_that_forgets_its_answer_fails():
    class Forgetful(Processor):
        def complete(self):
            pass

    with pytest.raises(AssertionError, match=r"complete\(\) returned"):
        verify_processor(Forgetful).expect([])
    with pytest.raises(AssertionError, match=r"complete\(\) returned None; return True"):
        verify_processor(Forgetful).without_progress_check().expect([])


def test_waiting_is_allowed_when_said_and_still_bounded():
    class Waiting(Processor):
        patience = 5

        def complete(self):
            self.patience -= 1
            return self.patience == 0

    verify_processor(Waiting).without_progress_check().expect([])
    with pytest.raises(AssertionError, match="no progress in 10000 calls"):
        verify_processor(type("Hopeless", (Waiting,), {"patience": 0})).without_progress_check().expect([])


def test_a_slow_call_of_a_cooperative_processor_fails():
    verify_processor(type("Blocking", (Doubler,), {"is_cooperative": False})).inputs([1]).cooperative_timeout(0).expect(
        [2]
    )
    with pytest.raises(AssertionError, match="of a cooperative processor took"):
        verify_processor(Doubler).inputs([1]).cooperative_timeout(0).expect([2])


def test_a_call_that_waits_for_a_core_is_not_slow(monkeypatch):
    class Pausing(Doubler):
        def try_process0(self, item):
            threading.Event().wait(0.002)
            return super().try_process0(item)

    check = verify_processor(Pausing).without_snapshots().inputs([1]).cooperative_timeout(0.001)
    with pytest.raises(AssertionError, match="of a cooperative processor took"):
        check.expect([2])
    waited = itertools.count(step=60)
    monkeypatch.setattr(mode_run, "waited_for_core", lambda thread: next(waited))
    check.expect([2])


def test_watermarks_keep_their_place_and_are_coalesced():
    verify_processor(Doubler).inputs([1, Watermark(5), 2, IDLE]).expect([2, Watermark(5), 4, IDLE])
    verify_processor(Sum).inputs([Watermark(5), 1], [Watermark(3), 1]).expect([Watermark(3), 2])


def test_edges_take_turns_or_follow_their_priorities():
    class Tagging(AbstractProcessor):
        def try_process_any(self, ordinal, item):
            return self.try_emit(item)

    check = verify_processor(Tagging).inputs(["a", "b"], ["c"])
    check.priorities(1, 0).expect(["c", "a", "b"])
    with pytest.raises(ValueError, match="1 priorities for 2 inputs"):
        check.priorities(1).expect(["c", "a", "b"])


def test_each_ordinal_has_its_output():
    class Splitting(AbstractProcessor):
        def try_process0(self, item):
            return self.try_emit(item, item % 2)

    verify_processor(Splitting).inputs([1, 2, 3, 4]).expect([2, 4], [1, 3])


def test_without_outbound_edges_nothing_is_collected():
    verify_processor(Doubler).inputs([1, 2]).expect()
    verify_processor(Numbers).expect()


def test_complete_can_be_left_out():
    verify_processor(Sum).inputs([1]).without_complete().expect([])


def test_everything_is_closed_once_whatever_happens():
    log = []

    class Logging(Doubler):
        def close(self):
            log.append("processor")

    class Supplier(ProcessorSupplier):
        def init(self, context):
            log.append(context.vertex_name)

        def get(self, count):
            return [Logging() for _ in range(count)]

        def close(self, error):
            log.append(type(error).__name__)

    verify_processor(Supplier()).without_snapshots().inputs([1]).expect([2])
    assert log == ["test", "processor", "NoneType"] * sum(not mode.takes_snapshots for mode in MODES)
    log.clear()
    with pytest.raises(TypeError, match="unsupported operand"):
        verify_processor(Supplier()).inputs([{}]).expect([2])
    assert log == ["test", "processor", "TypeError"]


def test_the_context_can_be_set():
    class WritingToTheGrid(Processor):
        def process(self, ordinal, inbox):
            self.context.grid.get_map("m").put_all((item, self.context.vertex_name) for item in inbox.take())

    grid = TestGrid()
    verify_processor(WritingToTheGrid).context(grid=grid, vertex_name="w").inputs(["a"]).expect()
    assert grid.maps == {"m": {"a": "w"}}


def test_a_processor_among_others_can_be_checked():
    class WhichOne(Processor):
        def complete(self):
            return self.outbox.offer((self.context.local_index, self.context.local_parallelism))

    verify_processor(WhichOne).context(local_index=2, local_parallelism=3).expect([(2, 3)])


def test_the_parts_can_be_used_by_hand():
    processor, inbox, outbox = Doubler(), TestInbox(1, 2), TestOutbox(1)
    processor.init(outbox, TestContext())
    processor.process(0, inbox)
    assert (list(inbox), outbox.drain()) == ([2], [2])
    inbox.add(3)
    processor.process(0, inbox)
    assert (list(inbox), outbox.drain()) == ([3], [4])
    assert TestOutbox().bucket_count == 1


def test_the_grid_keeps_maps_and_lists_by_name():
    grid = TestGrid()
    grid.get_map("m").put("k", 1)
    grid.get_map("m").put_all({"l": 2})
    grid.get_list("l").append(3)
    assert grid.get_map("m").get_all(["k", "x"]) == {"k": 1}
    assert grid.get_map("m").size() == 2
    assert grid.lists == {"l": [3]}
