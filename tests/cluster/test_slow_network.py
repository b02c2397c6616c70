"""Networks that are slow, narrow, lossy or deaf on one side; and members that are busy or stand still for a moment."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from shmjet import (
    DAG,
    ClientConfig,
    JetConfig,
    JetInstance,
    MemberLostError,
    between,
    new_client,
    new_instance,
    processors,
)
from tests.cluster.hosts import Hosts, burning, wait_until, why_no_rules, why_not
from tests.cluster.proxy import Proxy
from tests.cluster.test_hosts import SOON_S, coordinator, others, running

pytestmark = pytest.mark.slow
needs_hosts = pytest.mark.skipif(why_not() is not None, reason=f"no hosts: {why_not()}")
needs_rules = pytest.mark.skipif(why_no_rules() is not None, reason=f"no rules for packets: {why_no_rules()}")

_names = itertools.count()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as three:
        three.start()
        three.await_members(3)
        yield three


def check_answers(jet: JetInstance, items: int = 10_000) -> None:
    """Send texts over a partitioned edge to all members, and compare."""
    out, texts = f"slow{next(_names)}", [f"{number % 1000}: a line of some length" for number in range(items)]
    dag = DAG()
    source = dag.new_vertex("items", processors.read_items(texts))
    step = dag.new_vertex("count", processors.group_and_accumulate(lambda text: text, 0, lambda count, _: count + 1))
    sink = dag.new_vertex("sink", processors.write_map(out))
    dag.edge(between(source, step).partitioned().distributed()).edge(between(step, sink))
    jet.new_job(dag).run(120)
    assert dict(jet.get_map(out)) == Counter(texts)


def test_through_latency_jitter_and_cut_bytes_answers_are_the_same() -> None:
    with (
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush")) as first,
        Proxy(first.cluster.members[0].address, latency=0.02, jitter=0.02, cut=20_000) as proxy,
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", members=[proxy.address])) as second,
        new_client([proxy.address], ClientConfig(secret="hush")) as jet,
    ):
        before = [member.uuid for member in second.cluster.members]
        assert len(before) == 2
        check_answers(jet, 3_000)
        assert [member.uuid for member in first.cluster.members] == before
        assert proxy.connections == 2, "one of the members for everything, and the client's"
        assert proxy.bytes > 50_000


@needs_rules
def test_over_a_narrow_cable_and_with_lost_packets_answers_are_the_same(hosts: Hosts) -> None:
    with hosts.client() as jet:
        before = hosts.uuids(jet)
        narrow, lossy, _ = hosts.hosts
        try:
            hosts.narrow(narrow, "20mbit")
            hosts.drop(lossy, "input", percent=3)
            hosts.drop(lossy, "output", percent=3)
            check_answers(jet)
        finally:
            hosts.heal()
        assert hosts.uuids(jet) == before


@needs_hosts
@pytest.mark.parametrize("what", ["pause", "busy"])
def test_nobody_is_suspected_for_a_pause_of_a_second_or_for_being_busy(hosts: Hosts, what: str) -> None:
    hosts.await_members(3)
    with hosts.client() as jet:
        before = hosts.uuids(jet)
        lead = coordinator(hosts, jet)
        execution = running(jet)
        if what == "pause":
            for host in (lead, others(hosts, lead)[0]):
                hosts.pause(host, 1.0)
        else:
            with burning():
                check_answers(jet, 10_000)
        check_answers(jet, 100)
        assert not execution.done(), execution.exception()
        assert hosts.uuids(jet) == before
        execution.cancel()


@needs_rules
def test_one_that_nobody_hears_though_it_hears_all_has_to_go(hosts: Hosts) -> None:
    hosts.await_members(3)
    with hosts.client() as jet:
        lead = coordinator(hosts, jet)
        before = hosts.uuids(jet)
    deaf, other = others(hosts, lead)
    with hosts.client([lead]) as jet:
        execution = running(jet)
        for host in (lead, other):
            hosts.drop(host, "input", of=deaf)
        error = execution.exception(SOON_S)
        assert isinstance(error, MemberLostError)
        assert deaf.address in str(error)
        wait_until(lambda: len(jet.cluster.members) == 2, SOON_S, lambda: repr(jet.cluster.members))
        hosts.heal()
        hosts.await_members(3)
        after = hosts.uuids(jet)
        assert after[deaf.address] != before[deaf.address]
        assert {host.address: after[host.address] for host in (lead, other)} == {
            host.address: before[host.address] for host in (lead, other)
        }
