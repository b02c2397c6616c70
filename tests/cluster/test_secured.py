"""Members that join with TLS, and processes that may not join: another secret, another cluster, no code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from shmjet import (
    DAG,
    AuthenticationError,
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    ShmjetError,
    between,
    new_client,
    new_instance,
    processors,
)
from shmjet.cluster.member.banner import banner
from shmjet.cluster.protocol import Look, Shutdown
from shmjet.cluster.settings import MemberSettings
from tests.cluster.raw_client import raw_client

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Certificates for this host, of an authority of our own."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder: Path = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes", "-keyout"]
    openssl("req", "-x509", *key, "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=ca")
    openssl("req", *key, "m.key", "-out", "m.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names"]
    openssl("x509", "-req", "-in", "m.csr", *signed, "-out", "m.pem")
    return {"cert": folder / "m.pem", "key": folder / "m.key", "ca": folder / "ca.pem", "mutual": True}


@pytest.fixture(scope="module")
def first(tls: dict[str, object]) -> Iterator[JetInstance]:
    with new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", tls=tls)) as jet:
        yield jet


def address_of(jet: JetInstance) -> str:
    return jet.cluster.members[0].address


def items() -> DAG:
    dag = DAG()
    source, sink = dag.new_vertex("items", processors.read_items(range(100))), processors.write_list("out")
    return dag.edge(between(source, dag.new_vertex("sink", sink)).distributed())


def test_members_and_clients_meet_over_tls(first: JetInstance, tls: dict[str, object]) -> None:
    address = address_of(first)
    config = JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", tls=tls, members=[address])
    with new_instance(config) as second, new_client([address], ClientConfig(secret="hush", tls=tls)) as client:
        assert len(second.cluster.members) == 2
        client.new_job(items()).run(60)
        assert sorted(client.get_list("out")) == list(range(100))
        assert sorted(second.get_list("out")) == list(range(100))


def test_who_comes_in_the_clear_is_told_of_tls(first: JetInstance) -> None:
    with pytest.raises(ConfigError, match="TLS only"):
        new_client([address_of(first)], ClientConfig(secret="hush", connect_timeout=60))
    with pytest.raises(ConfigError, match="TLS only"):  # it founded a cluster of its own
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", members=[address_of(first)]))
    assert len(first.cluster.members) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cert": "nowhere.pem"}, "nowhere.pem"),
        ({"ca": "nowhere.pem"}, "nowhere.pem"),
        ({"cert": None}, "certificate"),
        ({"key": None}, "m.pem"),
    ],
)
def test_files_of_tls_that_cannot_be_used_are_named_at_once(
    tls: dict[str, object], changed: dict[str, object], said: str
) -> None:
    settings = {name: value for name, value in {**tls, **changed}.items() if value is not None}
    with pytest.raises(ConfigError, match=said):
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", tls=settings))


def test_a_member_with_another_secret_does_not_join(first: JetInstance, tls: dict[str, object]) -> None:
    wrong = JetConfig(cores=1, bind="127.0.0.1:0", secret="other", tls=tls, members=[address_of(first)])
    with pytest.raises(AuthenticationError):
        new_instance(wrong)
    assert len(first.cluster.members) == 1


def test_a_member_of_another_cluster_or_with_other_partitions_does_not_join(
    first: JetInstance, tls: dict[str, object]
) -> None:
    common = {"cores": 1, "bind": "127.0.0.1:0", "secret": "hush", "tls": tls, "members": [address_of(first)]}
    with pytest.raises(ConfigError, match="partition_count 271"):
        new_instance(JetConfig(**common, partition_count=17))
    with pytest.raises(ConfigError, match="cluster"):
        new_instance(JetConfig(**common, cluster_name="other"))


def test_a_member_that_allows_no_code_says_so() -> None:
    with (
        new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", member_secret="m", allow_code=False)) as jet,
        new_client([address_of(jet)], ClientConfig(secret="hush")) as client,
    ):
        with pytest.raises(AuthenticationError, match="allow_code"):
            client.new_job(items()).run(60)
        assert client.jobs() == []


def test_who_comes_with_tls_may_no_more_than_who_comes_in_the_clear(tls: dict[str, object]) -> None:
    config = JetConfig(cores=1, bind="127.0.0.1:0", secret="hush", member_secret="m", tls=tls, allow_code=False)
    with (
        new_instance(config) as jet,
        new_client([address_of(jet)], ClientConfig(secret="hush", tls=tls)) as client,
        raw_client(address_of(jet), "hush", tls) as raw,
    ):
        with pytest.raises(AuthenticationError, match="allow_code"):
            client.new_job(items()).run(60)
        with pytest.raises(AuthenticationError, match="can end a member"):
            raw.ask(Shutdown)
        with pytest.raises(ShmjetError, match="only a process of the same host"):
            raw.ask(Look)
        assert len(client.cluster.members) == 1


def test_a_member_without_a_secret_opens_no_port() -> None:
    with new_instance(JetConfig(cores=1)) as jet:
        member = psutil.Process(jet.cluster.members[0].pid)
        for process in (member, *member.children(recursive=True)):
            sockets = getattr(process, "net_connections", None) or process.connections  # its name before psutil 6
            assert sockets("inet") == []
    with pytest.raises(ConfigError, match="a member opens no port without one"):
        JetConfig(bind="127.0.0.1:0")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "opens no port: it has no network"),
        ({"bind": "10.0.0.5:5701"}, "in the clear: who can read the network can read what jobs send"),
        ({"bind": "10.0.0.5:5701", "tls": {"certificate": "m.pem"}}, "reached at 10.0.0.5:5701; TLS"),
        ({"bind": "10.0.0.5:5701", "tls": {"certificate": "m.pem", "mutual": True}}, "have to show a certificate"),
        ({"bind": "10.0.0.5:5701"}, "clients may run any code here"),
        ({"bind": "10.0.0.5:5701"}, "open only to members and clients that prove that they know the secret"),
        ({"bind": "10.0.0.5:5701", "tells_members_apart": True}, "members that prove the member secret as well"),
        ({"bind": "10.0.0.5:5701", "allow_code": False, "jobs": {"nightly": "a:b"}}, "configuration: nightly"),
        ({"bind": "10.0.0.5:5701", "allow_code": False}, "jobs of its own configuration: none"),
    ],
)
def test_the_banner_says_what_is_open_to_whom(settings: dict[str, object], said: str) -> None:
    common: dict[str, object] = {
        **{name: [] for name in ("cores", "allowed", "memory_nodes", "log_levels")},
        **dict.fromkeys(("partition_count", "ring_memory", "idle_min_ns", "idle_max_ns", "client_pid"), 1),
    }
    made = msgspec.convert(
        {
            "cluster_name": "dev",
            "spin": True,
            "note": "",
            "force_rings": False,
            "steal_margin": 2,
            **common,
            **settings,
        },
        MemberSettings,
    )
    text = "\n".join(banner(made, Path("/tmp/folder"), "0" * 32, "10.0.0.5:5701"))
    assert said in text
    assert "this user and root only" in text
