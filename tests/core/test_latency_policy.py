"""The latency policy of a job: one choice, in one object, that everything which waits asks."""

from __future__ import annotations

from shmjet.core.context import ProcessorContext
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT, policy_in, set_policy, strictest


def test_low_latency_waits_nowhere_longer_than_throughput() -> None:
    for name, low, high in zip(THROUGHPUT._fields, LOW_LATENCY, THROUGHPUT, strict=True):
        assert 0 <= low <= high, name
    assert LOW_LATENCY.full_collection_share == 0, "a collection of all objects stops every stream of the worker"


def test_without_an_engine_the_policy_is_throughput() -> None:
    assert policy_in(ProcessorContext()) is THROUGHPUT


def test_the_policy_of_the_engine_comes_with_the_context() -> None:
    context = ProcessorContext()
    set_policy(context, LOW_LATENCY)
    assert policy_in(context) is LOW_LATENCY
    assert context == ProcessorContext()


def test_jobs_that_share_a_worker_keep_to_the_strictest_policy() -> None:
    assert strictest([]) is THROUGHPUT
    assert strictest([THROUGHPUT, THROUGHPUT]) is THROUGHPUT
    assert strictest([THROUGHPUT, LOW_LATENCY]) is strictest([LOW_LATENCY, THROUGHPUT]) is LOW_LATENCY
