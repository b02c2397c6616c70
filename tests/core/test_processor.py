"""The processor contract's defaults, and the three levels of suppliers."""

import cloudpickle
import pytest

from shmjet.core import (
    MetaSupplierContext,
    Outbox,
    Processor,
    ProcessorContext,
    ProcessorError,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    Watermark,
    make_processors,
    supplier_for_all,
)
from shmjet.core.inbox import Inbox
from shmjet.core.keys import DEFAULT_TO_ONE_KEY, partition_id
from shmjet.core.processor import FactorySupplier


class Quiet(Processor):
    is_cooperative = False

    def init(self, outbox, context):
        pass


def ready(processor, *marks):
    outbox = Outbox(marks)
    processor.init(outbox, ProcessorContext())
    return outbox


def test_defaults_say_that_nothing_is_left_to_do():
    processor = Processor()
    ready(processor)
    assert processor.is_cooperative
    assert processor.try_process()
    assert processor.complete_edge(0)
    assert processor.complete()
    assert processor.save_to_snapshot()
    assert processor.snapshot_commit_prepare()
    assert processor.snapshot_commit_finish(True)
    assert processor.finish_snapshot_restore()
    processor.close()


def test_a_watermark_is_passed_on_when_there_is_room():
    processor = Processor()
    outbox = ready(processor, 1)
    assert processor.try_process_watermark(Watermark(1))
    assert not processor.try_process_watermark(Watermark(2))
    assert outbox.buckets == [[Watermark(1)]]


def test_a_watermark_without_an_outbox_says_which_call_was_forgotten():
    processor = Quiet()
    ready(processor, 1)
    with pytest.raises(ProcessorError, match=r"its init\(\) has to call super\(\)\.init"):
        processor.try_process_watermark(Watermark(1))


def test_items_for_a_processor_without_process_are_an_error():
    with pytest.raises(ProcessorError, match=r"Quiet got items on inbound ordinal 2 but does not implement"):
        Quiet().process(2, Inbox())
    with pytest.raises(ProcessorError, match="does not implement restore_from_snapshot"):
        Quiet().restore_from_snapshot(Inbox())


def test_a_factory_is_called_once_per_processor():
    supplier = ProcessorSupplier.of(Processor)
    made = supplier.get(3)
    assert len({id(processor) for processor in made}) == 3
    assert ProcessorSupplier.of(supplier) is supplier
    assert repr(supplier) == "FactorySupplier(Processor)"


@pytest.mark.parametrize(("factory", "declared"), [(Processor, True), (Quiet, False), (lambda: Quiet(), None)])
def test_cooperativeness_is_known_where_it_is_declared(factory, declared):
    assert ProcessorSupplier.of(factory).is_cooperative is declared
    assert ProcessorMetaSupplier.of(factory).is_cooperative is declared


def test_an_attribute_of_a_function_declares_it_too():
    def factory():
        return Quiet()

    factory.is_cooperative = False
    assert ProcessorSupplier.of(factory).is_cooperative is False


def test_a_property_of_the_class_leaves_it_to_the_object():
    class Undecided(Processor):
        @property
        def is_cooperative(self):
            return False

    assert ProcessorSupplier.of(Undecided).is_cooperative is None


def test_a_meta_supplier_gives_every_member_the_same_supplier():
    meta = ProcessorMetaSupplier.of(Processor)
    suppliers = meta.get(["a", "b"])
    assert suppliers["a"] is suppliers["b"]
    assert meta.preferred_local_parallelism == -1
    assert ProcessorMetaSupplier.of(meta) is meta


def test_what_all_members_get_is_known_unless_a_meta_supplier_decides():
    supplier = ProcessorSupplier.of(Processor)
    assert supplier_for_all(Processor) is Processor
    assert supplier_for_all(supplier) is supplier
    assert supplier_for_all(ProcessorMetaSupplier.of(supplier)) is supplier
    assert supplier_for_all(ProcessorMetaSupplier.force_total_parallelism_one(supplier)) is None


@pytest.mark.parametrize("key", [None, "other"])
def test_a_total_parallelism_of_one_has_one_real_processor_where_all_to_one_leads(key):
    meta = ProcessorMetaSupplier.force_total_parallelism_one(Quiet, key)
    assert meta.preferred_local_parallelism == 1
    meta.init(MetaSupplierContext(local_parallelism=1))
    suppliers = meta.get(["c", "b", "a"])
    owner = "cba"[partition_id(DEFAULT_TO_ONE_KEY if key is None else key, 271) % 3]
    for address in "abc":
        (made,) = suppliers[address].get(1)
        assert isinstance(made, Quiet) is (address == owner)
    idle = next(supplier.get(1)[0] for address, supplier in suppliers.items() if address != owner)
    inbox = Inbox()
    inbox.fill([1])
    idle.process(0, inbox)
    assert not inbox


def test_a_total_parallelism_of_one_refuses_more():
    meta = ProcessorMetaSupplier.force_total_parallelism_one(Processor)
    with pytest.raises(ProcessorError, match=r"'v' supports a total parallelism of 1 only, .* is 2"):
        meta.init(MetaSupplierContext(vertex_name="v", local_parallelism=2))


def test_a_supplier_without_get_is_an_error():
    with pytest.raises(ProcessorError, match="does not implement get"):
        ProcessorSupplier().get(1)
    with pytest.raises(ProcessorError, match="does not implement get"):
        ProcessorMetaSupplier().get([])


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ([Processor()], r"get\(2\) of its supplier must return 2 processors, got 1 processors"),
        (None, "must return 2 processors, got None"),
        ([Processor(), "x"], "must make Processor objects, got 'x'"),
    ],
)
def test_what_a_supplier_gives_is_checked(made, text):
    class Broken(ProcessorSupplier):
        def get(self, count):
            return made

    with pytest.raises(ProcessorError, match=f"vertex 'v'.*{text}"):
        make_processors(Broken(), 2, "v")


def test_processors_are_made_in_order():
    class Numbered(ProcessorSupplier):
        def get(self, count):
            return tuple(Processor() for _ in range(count))

    assert len(make_processors(Numbered(), 3, "v")) == 3


def test_suppliers_survive_cloudpickle():
    limit = 3
    meta = cloudpickle.loads(cloudpickle.dumps(ProcessorMetaSupplier.of(lambda: [Processor()] * limit)))
    assert isinstance(meta.get(["a"])["a"], FactorySupplier)
