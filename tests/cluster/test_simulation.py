"""Some hundred stories; stress/simulate_cluster.py tells ten thousand."""

from __future__ import annotations

import pytest

from tests.cluster.simulation import Broken, Simulation
from tests.examples import drawn

CHUNK = 50


@pytest.mark.parametrize("first", range(0, drawn(400), CHUNK))
def test_stories_end_well(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulation = Simulation(seed)
        simulation.run()  # raises what it has found
        assert simulation.views, f"story {seed} has no view"


@pytest.mark.parametrize(
    "seed",
    [
        9736,  # a leaving member had a proposal under way, which was accepted
        502436,  # a member was isolated, and the members that it missed were started again and did not know of it
        504364,
        505316,  # one accepted, did not learn that it was a member, was lost as one, and asked again as the same
        513136,
        517873,
        505924,  # one had accepted the views of both halves, and installed the one after the other
        128,  # a table that never came into force called the only living replica stale
        1376963166,  # partitions were lost with a view that was followed by a fence in the same moment
        2878,  # the coordinator had proposed a view that it gave up, and could not change the table any more
    ],
)
def test_stories_that_once_ended_badly_end_well(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()  # raises what it has found
    assert simulation.views


def test_a_story_can_be_told_again() -> None:
    def told() -> tuple[list[str], object]:
        simulation = Simulation(11)
        simulation.run()
        return simulation.trace, simulation.views

    assert told() == told()


def test_a_breach_names_its_seed() -> None:
    simulation = Simulation(3, size=2, faults=0)
    simulation.up_to(5.0)
    node = simulation.members()[0]
    assert node.member is not None
    assert node.member.view is not None
    with pytest.raises(Broken, match=r"seed 3: .* goes from epoch"):
        node.check(node.member.view)
