"""Services are made once, shared as asked, and closed at the end."""

from __future__ import annotations

from typing import Any

import pytest

from shmjet.data.errors import ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.general.service_use import using_service
from shmjet.processors.general.services import ServiceFactory, takes_an_argument
from shmjet.testing import verify_processor
from tests.processors.driving import Driver, processors_of


class Service:
    """Remembers who made it, and that it was closed."""

    made = 0

    def __init__(self, context: Any = None) -> None:
        type(self).made += 1
        self.context = context
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("kind", "fn", "expected"),
    [
        ("map", lambda s, x: x + s if x != 2 else None, [11, 13]),
        ("filter", lambda s, x: x != 2, [1, 3]),
        ("flat_map", lambda s, x: [s] * x, [10] * 6),
    ],
)
def test_items_meet_the_service(kind: str, fn: Any, expected: list[int]) -> None:
    verify_processor(using_service(kind, ServiceFactory(lambda: 10), fn)).inputs([1, 2, 3]).expect(expected)


def test_a_key_is_handed_over() -> None:
    keyed = using_service("map", ServiceFactory(lambda: 1), lambda s, k, x: (s, k, x), lambda x: x % 2, True)
    verify_processor(keyed).inputs([1, 2]).expect([(1, 1, 1), (1, 0, 2)])
    itself = using_service("map", ServiceFactory(lambda: 1), lambda s, k, x: (k, x), None, True)
    verify_processor(itself).inputs([7]).expect([(7, 7)])


def made_with(factory: ServiceFactory[Any], count: int) -> list[Any]:
    return processors_of(using_service("map", factory, lambda service, x: service), count)


def test_a_shared_service_is_made_once_and_closed_after_the_last_processor() -> None:
    Service.made = 0
    first, second = made_with(ServiceFactory(Service), 2)
    (service,) = set(Driver(first).feed([1]).output + Driver(second).feed([1]).output)
    assert Service.made == 1
    first.close()
    assert service.closed == 0
    second.close()
    second.close()
    assert service.closed == 1


def test_a_service_of_ones_own_is_made_for_each_processor() -> None:
    Service.made = 0
    first, second = made_with(ServiceFactory(Service, shared=False), 2)
    services = Driver(first).feed([1]).output + Driver(second).feed([1]).output
    assert Service.made == len(set(services)) == 2
    first.close()
    assert [service.closed for service in services] == [1, 0]


def test_create_gets_the_context_if_it_wants_it_and_destroy_closes() -> None:
    closed: list[Any] = []
    factory = ServiceFactory(lambda context: context.vertex_name, closed.append)
    (processor,) = made_with(factory, 1)
    assert Driver(processor).feed([1]).output == ["v"]
    processor.close()
    assert closed == ["v"]


def test_a_processor_that_never_started_closes_nothing() -> None:
    (processor,) = made_with(ServiceFactory(lambda: 1, lambda _: pytest.fail("closed")), 1)
    processor.close()


def test_a_service_that_blocks_gets_processes_of_its_own() -> None:
    blocking = using_service("map", ServiceFactory(Service, is_cooperative=False), lambda s, x: x)
    assert blocking.is_cooperative is False
    assert not processors_of(blocking)[0].is_cooperative


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="create must be callable, got 5"):
        ServiceFactory(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="destroy must be callable or None, got 5"):
        ServiceFactory(Service, 5)  # type: ignore[arg-type]
    with pytest.raises(ProcessorError, match="expected map, filter or flat_map, got 'sort'"):
        using_service("sort", ServiceFactory(Service), lambda s, x: x)
    with pytest.raises(TypeError, match="expected a function of service and item, got int"):
        using_service("map", ServiceFactory(Service), 5)  # type: ignore[arg-type]


def test_functions_that_have_to_be_given_an_argument_are_told_from_others() -> None:
    assert [takes_an_argument(fn) for fn in (Service, len, lambda c: c, lambda *c: c, object)] == [
        False,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "fn", "expected"),
    [
        ("map", lambda s, x: x + s if x != 2 else None, [(5, 11), Watermark(6), (7, 13)]),
        ("filter", lambda s, x: x != 2, [(5, 1), Watermark(6), (7, 3)]),
        ("flat_map", lambda s, x: [s] * x, [(5, 10), (6, 10), (6, 10), Watermark(6), (7, 10), (7, 10), (7, 10)]),
    ],
)
def test_timed_items_give_their_times_to_results(kind: str, fn: Any, expected: list[Any]) -> None:
    supplier = using_service(kind, ServiceFactory(lambda: 10), fn, timed=True)
    verify_processor(supplier).inputs([(5, 1), (6, 2), Watermark(6), (7, 3)]).expect(expected)


def test_none_among_the_results_of_a_timed_flat_map_is_refused() -> None:
    supplier = using_service("flat_map", ServiceFactory(lambda: 10), lambda s, x: [None], timed=True)
    with pytest.raises(TypeError, match="stage 'v': None is never an item"):
        Driver(processors_of(supplier)[0]).feed([(5, 1)])
