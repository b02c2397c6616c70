"""A fused chain does what its steps do one after the other."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.processors.general import fused_steps
from shmjet.processors.general.fused_steps import Kind, Step, fused
from shmjet.testing import verify_processor
from tests.examples import examples
from tests.processors.driving import Driver, processors_of

FUNCTIONS: dict[tuple[Kind, str], Any] = {
    ("map", "half"): lambda x: x // 2,
    ("map", "drop"): lambda x: x if x % 3 else None,
    ("filter", "odd"): lambda x: x % 2,
    ("filter", "small"): lambda x: x < 50,
    ("flat_map", "list"): lambda x: [x, x + 1][: x % 3],
    ("flat_map", "tuple"): lambda x: (x,) * (x % 3),
    ("flat_map", "range"): lambda x: range(x % 4),
    ("flat_map", "generator"): lambda x: (x + i for i in range(x % 4)),
    ("flat_map", "mixed"): lambda x: [x] if x % 2 else iter((x, x)),
    ("peek", "pass"): lambda x: True,
}


def done_by_hand(names: list[tuple[Kind, str]], items: list[int]) -> list[int]:
    for kind, name in names:
        fn = FUNCTIONS[kind, name]
        if kind == "map":
            items = [y for x in items if (y := fn(x)) is not None]
        elif kind == "filter":
            items = [x for x in items if fn(x)]
        elif kind == "flat_map":
            items = [y for x in items for y in fn(x)]
    return items


def steps(*names: tuple[Kind, str]) -> list[Step]:
    return [Step(kind, FUNCTIONS[kind, name], f"{kind}-{i}") for i, (kind, name) in enumerate(names)]


@pytest.mark.parametrize("names", [[n] for n in FUNCTIONS] + [[a, b] for a in FUNCTIONS for b in FUNCTIONS][::7])
def test_chains_of_one_and_two_steps_keep_the_contract(names: list[tuple[Kind, str]]) -> None:
    items = list(range(30))
    verify_processor(fused(steps(*names))).inputs(items).expect(done_by_hand(names, items))


@examples(200)
@given(
    st.lists(st.sampled_from(list(FUNCTIONS)), min_size=1, max_size=6),
    st.lists(st.integers(0, 100), max_size=60),
    st.integers(1, 40),
)
def test_any_chain_does_what_its_steps_do_one_after_the_other(
    names: list[tuple[Kind, str]], items: list[int], room: int
) -> None:
    driver = Driver(processors_of(fused(steps(*names)))[0], room=room)
    assert driver.feed(list(items)).complete() == done_by_hand(names, items)


def test_no_steps_pass_everything_on() -> None:
    verify_processor(fused([])).inputs([1, 2]).expect([1, 2])


def test_endless_results_are_drawn_only_as_far_as_there_is_room() -> None:
    drawn: list[int] = []

    def endless(start: int) -> Iterator[int]:
        for i in itertools.count(start):
            drawn.append(i)
            yield i

    processor = processors_of(fused([Step("flat_map", endless, "a"), Step("map", lambda x: x * 2, "b")]))[0]
    driver = Driver(processor, room=10)
    inbox = fused_steps.Inbox()
    inbox.fill([5, 6])
    driver.call(processor.process, 0, inbox)
    driver.call(processor.process, 0, inbox)
    made = driver.output  # a call is bounded in time, too, and ends before there is no room on a busy machine
    assert 2 <= len(made) <= 20
    assert made == [2 * i for i in range(5, 5 + len(made))]
    assert len(drawn) <= len(made) + 1


def test_each_function_is_called_once_for_each_item_also_when_a_result_is_long() -> None:
    calls: list[int] = []

    def noted(x: int) -> Any:
        calls.append(x)
        return iter([x]) if x == 3 else [x]

    chain = [Step("map", lambda x: x, "m"), Step("flat_map", noted, "f"), Step("filter", lambda x: True, "g")]
    driver = Driver(processors_of(fused(chain))[0])
    assert driver.feed(list(range(200))).complete() == list(range(200))
    assert calls == list(range(200))


def test_an_error_names_the_stage_it_came_from_when_there_are_several() -> None:
    def broken(x: int) -> int:
        raise ValueError(f"no {x}")

    for opening in (Step("map", lambda x: x, "first"), Step("flat_map", lambda x: [x], "first")):
        chain = [
            opening,
            Step("filter", lambda x: True, "second"),
            Step("map", broken, "third"),
        ]
        driver = Driver(processors_of(fused(chain))[0])
        with pytest.raises(ValueError, match="no 1") as caught:
            driver.feed([1])
        assert caught.value.__notes__ == ["in stage 'third'"]


def test_an_error_in_what_is_drawn_lazily_names_its_stage_too() -> None:
    def broken(x: int) -> int:
        raise ValueError(f"no {x}")

    chain = [Step("flat_map", lambda x: iter([x]), "first"), Step("map", broken, "second")]
    with pytest.raises(ValueError, match="no 1") as caught:
        Driver(processors_of(fused(chain))[0]).feed([1])
    assert caught.value.__notes__ == ["in stage 'second'"]


@pytest.mark.parametrize("result", [5, None])
@pytest.mark.parametrize("last", [True, False])
def test_a_flat_map_that_returns_no_iterable_is_told_so_by_name(result: Any, last: bool) -> None:
    chain = [Step("flat_map", lambda x: result, "split")]
    if not last:
        chain.append(Step("map", lambda x: x, "map"))
    with pytest.raises(TypeError, match=r"stage 'split'.*must return an iterable"):
        Driver(processors_of(fused(chain))[0]).feed([1])


def test_none_among_the_results_of_flat_map_is_no_item() -> None:
    with pytest.raises(TypeError, match="None is never an item"):
        Driver(processors_of(fused([Step("flat_map", lambda x: [None], "split")]))[0]).feed([1])


def test_what_is_no_function_is_refused_with_the_stages_name() -> None:
    with pytest.raises(TypeError, match="stage 'm': expected a function, got int"):
        fused([Step("map", 5, "m")])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown kind of step 'reduce'"):
        fused([Step("reduce", len, "m")])  # type: ignore[arg-type]


def test_a_running_processor_can_move_to_another_worker() -> None:
    chain = [Step("map", str.strip, "strip"), Step("flat_map", str.split, "split")]
    processor = processors_of(fused(chain))[0]
    assert Driver(processor).feed([" a b "]).complete() == ["a", "b"]
    del processor.outbox, processor.context, processor.emission  # type: ignore[attr-defined]
    assert Driver(pickle.loads(pickle.dumps(processor))).feed([" c  d "]).complete() == ["c", "d"]


def test_a_chain_of_lambdas_travels_to_workers() -> None:
    supplier = cloudpickle.loads(cloudpickle.dumps(fused(steps(("map", "half"), ("flat_map", "list")))))
    assert Driver(supplier()).feed([4, 9]).complete() == done_by_hand([("map", "half"), ("flat_map", "list")], [4, 9])


@pytest.mark.parametrize("results", [lambda: [None], lambda: (1, None), lambda: iter([1, None]), lambda: {None: 1}])
@pytest.mark.parametrize("behind", [[], ["filter"], ["flat_map"]])
def test_none_from_a_timed_flat_map_is_refused(results: Any, behind: list[Any]) -> None:
    fns = {"filter": lambda item: True, "flat_map": lambda item: [item]}
    steps = [Step("flat_map", lambda item: results(), "many"), *(Step(kind, fns[kind], kind) for kind in behind)]
    driver = Driver(processors_of(fused(steps, times="kept"))[0])
    with pytest.raises(TypeError, match="None is never an item"):
        driver.feed([(5, 1)])
