"""The latency policy of a job: how long its items may wait so that work is done in larger pieces. Pure.

A plan carries one policy; tasklets, routers and workers are made with it, processors find it in their context. Every
number with which the engine trades latency for throughput stands here. Facts about the machine (what a call costs) and
bounds of memory do not: they stay where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shmjet.core.context import ProcessorContext


class LatencyPolicy(NamedTuple):
    """How much latency a job accepts for its throughput. A named tuple, as it travels with each plan.

    Example:
        >>> THROUGHPUT.call_ns, LOW_LATENCY.call_ns
        (1000000, 200000)
    """

    call_ns: int
    """Nanoseconds that one call of a processor should take; all tasklets of a worker take turns."""
    call_items: int
    """Most items given to one `process` call."""
    emission_ns: int
    """Nanoseconds for which one call may offer more items than fit `call_ns`; then the outbox refuses them."""
    slow_call_ns: int
    """A call that takes more nanoseconds is counted as slow."""
    worked_ns: int
    """A call without a result that took more nanoseconds has worked; a shorter one has only looked for work."""
    row_delay_ns: int
    """Nanoseconds for which a partitioned edge keeps rows back, while more come, to fill the batches it sends."""
    write_items: int
    """Items that a sink of the grid writes at once: a transaction per environment is shared by that many."""
    write_delay_ns: int
    """Nanoseconds that items wait for others to be written to the grid with them, at most."""
    result_delay_ns: int
    """Nanoseconds that results wait for others on their way to a client on another host, at most."""
    blocking_ns: int
    """Nanoseconds for which a call that blocks (on a socket) waits for the other side."""
    start_report_ns: int
    """Nanoseconds for which an execution runs on a worker before the member is told that all were ready."""
    young_objects: int
    """New containers after which the cyclic garbage collector looks at the young generation."""
    young_collections: int
    """Collections of the young generation for each one of the middle generation."""
    middle_collections: int
    """Collections of the middle generation for each one of all objects."""
    full_collection_share: int
    """A collection of all objects takes at most one part in so many of the time; 0: there is none."""


THROUGHPUT = LatencyPolicy(
    call_ns=1_000_000,
    call_items=1 << 12,
    emission_ns=50_000_000,
    slow_call_ns=5_000_000,
    worked_ns=200_000,
    row_delay_ns=20_000_000,
    write_items=8192,
    write_delay_ns=20_000_000,
    result_delay_ns=20_000_000,
    blocking_ns=200_000_000,
    start_report_ns=1_000_000,
    young_objects=20_000,
    young_collections=20,
    middle_collections=5,
    full_collection_share=20,
)
"""For jobs that end: what counts is when the last item is through."""

LOW_LATENCY = LatencyPolicy(
    call_ns=200_000,
    call_items=1 << 10,
    emission_ns=1_000_000,
    slow_call_ns=1_000_000,
    worked_ns=40_000,
    row_delay_ns=500_000,
    write_items=1024,
    write_delay_ns=1_000_000,
    result_delay_ns=1_000_000,
    blocking_ns=1_000_000,
    start_report_ns=1_000_000,
    young_objects=5_000,
    young_collections=20,
    middle_collections=5,
    full_collection_share=0,
)
"""For jobs with an endless source: what counts is how long each item is under way."""


LOW_LATENCY_S = 0.005
"""The `latency_target` in seconds, and any below, for which `LOW_LATENCY` is chosen."""
THROUGHPUT_S = 0.1
"""The `latency_target` in seconds, and any above, for which `THROUGHPUT` is chosen."""


def policy_for(target: float | None, *, is_endless: bool) -> LatencyPolicy:
    """Return the policy of a job.

    Between the two policies every number lies where the target lies between theirs, on a scale of ratios; all
    objects are looked at by the garbage collector with `THROUGHPUT` only.

    Args:
        target: `JobConfig.latency_target`, in seconds; None: `LOW_LATENCY` for endless jobs, else `THROUGHPUT`.
        is_endless: whether a source of the job never ends.

    Example:
        >>> policy_for(None, is_endless=True) is policy_for(0.001, is_endless=False) is LOW_LATENCY
        True
        >>> policy_for(0.02, is_endless=True).row_delay_ns
        2756345
    """
    if target is None:
        return LOW_LATENCY if is_endless else THROUGHPUT
    place = math.log(target / LOW_LATENCY_S) / math.log(THROUGHPUT_S / LOW_LATENCY_S)
    if place <= 0:
        return LOW_LATENCY
    if place >= 1:
        return THROUGHPUT
    between = [
        round(low * (high / low) ** place) if low else 0 for low, high in zip(LOW_LATENCY, THROUGHPUT, strict=True)
    ]
    return LatencyPolicy(*between)


def strictest(policies: Iterable[LatencyPolicy]) -> LatencyPolicy:
    """Return the policy with the shortest calls: what a process that several jobs share keeps to.

    Args:
        policies: of the jobs; without any, the answer is `THROUGHPUT`.

    Example:
        >>> strictest([THROUGHPUT, LOW_LATENCY]) is LOW_LATENCY
        True
    """
    return min(policies, key=lambda policy: policy.call_ns, default=THROUGHPUT)


def policy_in(context: ProcessorContext) -> LatencyPolicy:
    """Return the policy that the engine has set in a context; without an engine it is `THROUGHPUT`."""
    policy = context._latency
    return THROUGHPUT if policy is None else policy


def may_be_saved(context: ProcessorContext) -> bool:
    """Say whether a processor should keep what only snapshots need, where that costs something.

    Under a guarantee it must. Without one the job may be exported, which is worth the cost where it runs for long.
    """
    return context.snapshotting_enabled or policy_in(context) != THROUGHPUT


def set_policy(context: ProcessorContext, policy: LatencyPolicy) -> None:
    """Have a context tell the policy. The engine does, before a processor has the context."""
    object.__setattr__(context, "_latency", policy)
