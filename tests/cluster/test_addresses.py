"""What is remembered of addresses and identities has a bound: members come and go for years, under ever new ones."""

from __future__ import annotations

from shmjet.cluster.client import endpoint
from shmjet.cluster.client.endpoint import RemoteEndpoint
from shmjet.cluster.membership import cluster_search
from shmjet.cluster.membership.cluster_search import ClusterSearch
from shmjet.cluster.membership.contacts import DIAL_AGAIN_S, Contacts
from shmjet.cluster.membership.events import MembershipSettings
from tests.memory import held_bytes

OWN = "10.0.0.1:5701"


def search_from(*given: str) -> ClusterSearch:
    return ClusterSearch(OWN, given, MembershipSettings())


def test_addresses_that_were_heard_of_long_ago_are_forgotten_and_those_that_were_given_are_not() -> None:
    known = search_from("given:1", OWN)
    for start in range(1000):
        known.learn([OWN, f"host{start}:1", f"host{start + 1}:1"])
        known.nothing_at(f"host{start}:1")
    assert len(known.seeds) == cluster_search.MOST_LEARNED + 1
    assert {"given:1", "host999:1", "host1000:1"} <= known.seeds
    assert known.unreachable <= known.seeds
    known.nothing_at("host3:1")
    assert "host3:1" not in known.unreachable


def test_a_large_cluster_is_known_as_a_whole() -> None:
    known = search_from()
    all_hosts = {f"host{number}:1" for number in range(300)}
    assert known.learn(all_hosts)
    assert known.seeds == all_hosts
    assert not known.learn(all_hosts)


def test_who_was_given_under_another_name_stays() -> None:
    known = search_from("localhost:5702", "myself:5701")
    assert known.rename("localhost:5702", "127.0.0.1:5702")
    assert not known.rename("myself:5701", OWN)
    assert known.seeds == {"127.0.0.1:5702"}
    for number in range(100):
        known.learn([f"host{number}:1"])
    assert "127.0.0.1:5702" in known.seeds


def test_a_client_forgets_members_that_were_there_long_ago() -> None:
    way = RemoteEndpoint(["given:1"], "dev", b"hush", None, 1.0)
    for number in range(1000):
        way.learn(["given:1", f"host{number}:1", f"host{number + 1}:1"])
    assert len(way.gone.split(", ")) == endpoint.MOST_LEARNED + 1
    assert way.gone.startswith("no member can be reached at given:1, host999:1, host1000:1, host998:1")


def test_when_an_address_was_dialled_is_remembered_for_a_moment() -> None:
    now = [0.0]
    dialled: list[str] = []

    class Link:
        def connect(self, address: str) -> None:
            dialled.append(address)

    contacts = Contacts(lambda: Link(), lambda: now[0])  # type: ignore[arg-type, return-value]
    for number in range(5000):
        contacts.dial(f"host{number}:1")
        contacts.dial(f"host{number}:1")
        now[0] += DIAL_AGAIN_S / 10
    assert dialled == [f"host{number}:1" for number in range(5000)]
    assert held_bytes(contacts) < 100_000, "as much as some 300 addresses take"
