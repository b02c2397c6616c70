"""The modes of `verify_processor` that take snapshots: what keeps its state passes, what loses it fails in its mode."""

from __future__ import annotations

import re

import pytest

from shmjet import JobConfig, ProcessingGuarantee
from shmjet.core import AbstractProcessor, BroadcastKey, Processor, Watermark, traverse
from shmjet.testing import MODES, TestContext, TestInbox, TestOutbox, verify_processor

RESTORING = r"^snapshot and restore after every item"


class Counting(AbstractProcessor):
    """Emits each word with the number of times it has come, and all of them at the end."""

    def __init__(self):
        self.counts = {}
        self.entries = None
        self.results = None

    def try_process0(self, word):
        if not self.try_emit((word, self.counts.get(word, 0) + 1)):
            return False
        self.counts[word] = self.counts.get(word, 0) + 1
        return True

    def complete(self):
        while self.counts:
            word = next(iter(self.counts))
            if not self.try_emit(("end", word, self.counts[word])):
                return False
            del self.counts[word]
        return True

    def save_to_snapshot(self):
        if self.entries is None:
            self.entries = traverse(list(self.counts.items()))
        if not self.emit_from_traverser_to_snapshot(self.entries):
            return False
        self.entries = None
        return True

    def restore(self, key, value):
        self.counts[key] = value


WORDS = ["a", "b", "a", "c", "b", "a"]
COUNTED = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2), ("a", 3)]
ENDS = [("end", "a", 3), ("end", "b", 2), ("end", "c", 1)]


def verify(kind, output=None):
    verify_processor(kind).inputs(WORDS).any_order().expect(COUNTED + ENDS if output is None else output)


def variant(**members):
    return type("Variant", (Counting,), members)


def test_there_are_jets_five_ways_with_each_outbox():
    assert len(MODES) == 15
    assert {(mode.batch_size, mode.restore_every) for mode in MODES} == {
        (1, None),
        (None, None),
        (1, 0),
        (1, 1),
        (1, 2),
    }
    assert len({mode.name for mode in MODES}) == len(MODES)


def test_a_processor_that_saves_its_state_passes():
    verify(Counting)


def test_state_that_is_not_saved_fails_where_it_is_lost():
    forgetting = variant(save_to_snapshot=Processor.save_to_snapshot)
    with pytest.raises(
        AssertionError, match=RESTORING + r": wrong output on ordinal 0\n(.|\n)*not override save_to_sn"
    ):
        verify(forgetting)
    verify_processor(forgetting).without_snapshots().inputs(WORDS).expect(COUNTED + ENDS)


def test_state_that_is_saved_in_part_fails():
    def save(self):
        return not self.counts or self.try_emit_to_snapshot("a", self.counts["a"])

    with pytest.raises(AssertionError, match=RESTORING + r": wrong output(.|\n)*knows only what save_to_snapshot"):
        verify(variant(save_to_snapshot=save))


def test_state_that_is_not_taken_back_fails():
    class Forgetting(Processor):
        def process(self, ordinal, inbox):
            inbox.clear()

        def save_to_snapshot(self):
            return self.outbox.offer_to_snapshot("a", 1)

    with pytest.raises(AssertionError, match=RESTORING + ": Forgetting got saved state but does not implement"):
        verify_processor(Forgetting).inputs([1]).expect([])


def test_an_entry_that_is_refused_and_forgotten_fails():
    def save(self):
        for entry in self.counts.items():
            self.outbox.offer_to_snapshot(*entry)
        return True

    with pytest.raises(
        AssertionError, match=r"outbox of one slot.*save_to_snapshot\(\) is through, but item .* refused"
    ):
        verify(variant(save_to_snapshot=save))


def test_saving_that_does_not_get_on_fails():
    with pytest.raises(AssertionError, match=RESTORING + r": save_to_snapshot\(\) returned without progress"):
        verify(variant(save_to_snapshot=lambda self: False))
    with pytest.raises(AssertionError, match=RESTORING + r": save_to_snapshot\(\) returned None"):
        verify(variant(save_to_snapshot=lambda self: None))
    never = variant(save_to_snapshot=lambda self: False)
    with pytest.raises(AssertionError, match="no progress in 10000 calls"):
        verify_processor(never).without_progress_check().inputs(["a"]).expect([("a", 1), ("end", "a", 1)])


@pytest.mark.parametrize(
    "callback",
    ["finish_snapshot_restore", pytest.param("snapshot_commit_prepare", marks=pytest.mark.slow)],  # which may wait
)
def test_a_callback_of_snapshots_that_never_gets_through_fails(callback):
    stuck = rf"{RESTORING[1:]}.*: {callback}\(.*\) (returned without|made no) progress"
    with pytest.raises(AssertionError, match=stuck):
        verify(variant(**{callback: lambda self, *args: False}))


def test_entries_that_are_never_taken_back_fail():
    with pytest.raises(AssertionError, match=RESTORING + r": restore_from_snapshot\(inbox\) returned without progress"):
        verify(variant(restore_from_snapshot=lambda self, inbox: None))


def test_state_that_is_shared_with_the_processor_is_told_from_saved_state():
    class Sharing(Counting):
        def save_to_snapshot(self):
            return self.try_emit_to_snapshot(BroadcastKey("counts"), self.counts)

        def restore(self, key, value):
            self.counts = value

    class SharingByName(Sharing):
        shared = None  # of the class: found again in the same process, and nowhere else

        def save_to_snapshot(self):
            type(self).shared = self.counts
            return True

        def init(self, outbox, context):
            super().init(outbox, context)
            self.counts = {} if context.execution_id == 0 else self.counts

    verify(Sharing)
    with pytest.raises(AssertionError, match=RESTORING):
        verify(SharingByName)


def test_what_cannot_be_carried_fails_with_what_it_is():
    def unpicklable(self):
        return self.try_emit_to_snapshot("a", (n for n in ()))

    with pytest.raises(AssertionError, match=r"save_to_snapshot\(\) saved what cannot be restored: .*generator"):
        verify(variant(save_to_snapshot=unpicklable))
    with pytest.raises(AssertionError, match=r"saved what cannot be restored: .*object"):
        verify(variant(save_to_snapshot=lambda self: self.try_emit_to_snapshot(object(), 1)))


def test_a_source_is_interrupted_between_its_calls():
    class Numbers(AbstractProcessor):
        at = 0
        restored = False

        def complete(self):
            while self.at < 5:
                if not self.try_emit(self.at):
                    return False
                self.at += 1
            return True

        def save_to_snapshot(self):
            return self.try_emit_to_snapshot(BroadcastKey("at"), self.at)

        def restore(self, key, value):
            self.at = value

    verify_processor(Numbers).expect(range(5))
    ahead = type("Ahead", (Numbers,), {"restore": lambda self, key, value: setattr(self, "at", value + 1)})
    with pytest.raises(AssertionError, match=RESTORING + ", outbox of one slot.*wrong output"):
        verify_processor(ahead).expect(range(5))
    losing = type("Losing", (Numbers,), {"save_to_snapshot": Processor.save_to_snapshot})
    with pytest.raises(AssertionError, match=r"where 5 are expected, and no end\n  Losing does not override"):
        verify_processor(losing).expect(range(5))


def test_the_ends_of_edges_come_again_after_a_restore():
    class Gate(AbstractProcessor):
        is_open = False

        def try_process1(self, item):
            return True

        def try_process0(self, item):
            assert self.is_open
            return self.try_emit(item)

        def complete_edge(self, ordinal):
            self.is_open = self.is_open or ordinal == 1
            return True

    verify_processor(Gate).inputs([1, 2, 3], ["x"]).priorities(0, -1).expect([1, 2, 3])


class Committing(Processor):
    """A sink in two phases: what is written in a snapshot is visible once that is valid."""

    def init(self, outbox, context):
        super().init(outbox, context)
        self.log = context.grid.get_list("visible")
        self.fresh, self.prepared = [], []

    def process(self, ordinal, inbox):
        self.fresh += inbox.take()

    def save_to_snapshot(self):
        return self.outbox.offer_to_snapshot(BroadcastKey("pending"), self.prepared + self.fresh)

    def snapshot_commit_prepare(self):
        self.prepared += self.fresh
        self.fresh = []
        return True

    def snapshot_commit_finish(self, success):
        if success:
            self.log += [item for item in self.prepared if item not in self.log]
            self.prepared = []
        return True

    def restore_from_snapshot(self, inbox):
        for _, pending in inbox.take():
            self.prepared += pending

    def finish_snapshot_restore(self):
        return self.snapshot_commit_finish(True)

    def complete(self):
        assert self.context.snapshotting_enabled
        assert not self.fresh
        assert not self.prepared
        return True


def test_a_sink_ends_with_a_snapshot_of_both_phases():
    context = TestContext()

    class AtOnce(Committing):
        def complete(self):
            return True

    verify_processor(AtOnce).context(grid=context.grid).inputs([1, 2, 3]).expect()
    assert context.grid.lists == {"visible": [1, 2, 3]}

    class Checked(Committing):
        def complete(self):
            return super().complete() if self.context.snapshotting_enabled else True

    verify_processor(Checked).inputs([1, 2, 3]).expect()


def test_a_sink_that_drops_after_a_failed_snapshot_fails():
    class Dropping(Committing):
        def snapshot_commit_finish(self, success):
            super().snapshot_commit_finish(success)
            self.prepared = []
            return True

        def complete(self):
            if self.context.snapshotting_enabled:
                assert self.log == [1, 2, 3]
            self.log.clear()
            return True

    with pytest.raises(AssertionError):
        verify_processor(Dropping).inputs([1, 2, 3]).expect()


def test_committing_emits_nothing():
    class Emitting(Counting):
        def snapshot_commit_finish(self, success):
            return self.try_emit("committed")

    with pytest.raises(AssertionError, match=r"snapshot_commit_finish\(True\) emitted something"):
        verify(Emitting)


def test_each_restore_is_an_attempt_of_a_job_with_a_guarantee():
    seen = set()

    class Noting(Processor):
        def process(self, ordinal, inbox):
            seen.add((self.context.execution_id, self.context.processing_guarantee))
            inbox.clear()

    exactly, least = ProcessingGuarantee.EXACTLY_ONCE, ProcessingGuarantee.AT_LEAST_ONCE
    verify_processor(Noting).inputs([1, 2]).expect([])
    assert seen == {(0, ProcessingGuarantee.NONE), (0, exactly), (1, exactly)}
    seen.clear()
    verify_processor(Noting).context(job_config=JobConfig(processing_guarantee=least)).inputs([1]).expect([])
    assert {guarantee for _, guarantee in seen} == {least}


def test_watermarks_are_not_repeated_after_a_restore():
    verify_processor(Counting).inputs(["a", Watermark(1), "a", Watermark(2)]).without_complete().expect(
        [("a", 1), Watermark(1), ("a", 2), Watermark(2)]
    )


def test_long_inputs_have_fewer_snapshots():
    saves = []

    class Noting(Counting):
        def save_to_snapshot(self):
            saves.append(len(self.counts))
            return super().save_to_snapshot()

    words = [f"w{n}" for n in range(200)]
    expected = [(word, 1) for word in words] + [("end", word, 1) for word in words]
    verify_processor(Noting).inputs(words).any_order().expect(expected)
    assert len(saves) < len(words) ** 2


def test_state_can_be_saved_and_restored_by_hand():
    one, outbox = Counting(), TestOutbox()
    one.init(outbox, TestContext())
    one.process(0, TestInbox(*WORDS))
    assert one.save_to_snapshot()
    entries = outbox.drain_snapshot()
    assert dict(entries) == {"a": 3, "b": 2, "c": 1}
    other = Counting()
    other.init(TestOutbox(), TestContext())
    other.restore_from_snapshot(TestInbox(*entries))
    assert other.counts == one.counts
    assert outbox.drain_snapshot() == []
    outbox.offer_to_snapshot(object(), 1)
    with pytest.raises(TypeError, match=re.escape("object")):
        outbox.drain_snapshot()
