"""Who may see and who may change: every rule by hand-made headers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shmjet import ConfigError
from shmjet.console.access import Access, host_name, is_loopback, make_access, read_token

TOKEN = "0123456789abcdef"
LOCAL = make_access("127.0.0.1", token=TOKEN)
OWN = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}
WITH_TOKEN = {**OWN, "authorization": f"Bearer {TOKEN}"}


def status(access: Access, method: str, path: str, headers: dict[str, str]) -> int:
    refusal = access.refusal(method, path, headers)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080"])
def test_loopback_names_are_answered(host: str) -> None:
    assert status(LOCAL, "GET", "/api/state", {"host": host}) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", "", "10.0.0.1"]
)
def test_other_names_are_refused_so_that_a_site_cannot_have_its_name_point_here(host: str) -> None:
    assert status(LOCAL, "GET", "/", {"host": host}) == 421
    assert status(LOCAL, "POST", "/api/jobs/1/cancel", {**WITH_TOKEN, "host": host}) == 421


def test_further_names_can_be_allowed() -> None:
    access = make_access("127.0.0.1", allow=("Shmjet.example",))
    assert status(access, "GET", "/", {"host": "shmjet.example:443"}) == 200
    assert status(access, "GET", "/", {"host": "other.example"}) == 421


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 200),
        ({"authorization": "Bearer wrong-wrong-wrong-wrong"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": "Bearer \u00e9"}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://127.0.0.1:8080"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_change_needs_the_page_itself_and_the_token(change: dict[str, str], expected: int) -> None:
    assert status(LOCAL, "POST", "/api/jobs/1/cancel", {**WITH_TOKEN, **change}) == expected


def test_a_program_without_origin_may_change_something_with_the_token() -> None:
    headers = {"host": "localhost", "authorization": f"bearer {TOKEN}"}
    assert status(LOCAL, "POST", "/api/jobs/1/cancel", headers) == 200


def test_without_a_token_nothing_can_be_changed() -> None:
    access = make_access("127.0.0.1")
    assert status(access, "GET", "/api/state", OWN) == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert status(access, method, "/api/jobs/1/cancel", {**OWN, "authorization": "Bearer "}) == 403


def test_where_others_can_connect_reading_needs_the_token_too() -> None:
    access = make_access("0.0.0.0", token=TOKEN)
    host = {"host": "10.1.2.3:8080"}
    assert status(access, "GET", "/api/state", host) == 401
    assert status(access, "GET", "/metrics", host) == 401
    assert status(access, "GET", "/", host) == 200
    assert status(access, "GET", "/static/app.js", host) == 200
    assert status(access, "GET", "/metrics", {**host, "authorization": f"Bearer {TOKEN}"}) == 200
    assert status(access, "GET", "/metrics", {"host": "evil.example", "authorization": f"Bearer {TOKEN}"}) == 421


def test_a_private_console_asks_on_loopback_as_well() -> None:
    access = make_access("127.0.0.1", token=TOKEN, private=True)
    assert status(access, "GET", "/api/events", OWN) == 401
    assert status(access, "GET", "/api/events", WITH_TOKEN) == 200


def test_settings_that_would_leave_a_door_open_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        make_access("0.0.0.0")
    with pytest.raises(ConfigError, match="needs a token"):
        make_access("127.0.0.1", private=True)
    with pytest.raises(ConfigError, match="at least 16"):
        make_access("127.0.0.1", token="short")


def test_a_token_file_is_made_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = read_token(path)
    assert len(made) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(path) == made


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(path)


@pytest.mark.parametrize("text", ["", "short\n", "0123456789abcdef\u00e9", "0123456789abcdef\n0123456789abcdef\n"])
def test_a_token_file_without_a_proper_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="one line"):
        read_token(path)


def test_names_and_addresses() -> None:
    assert [host_name(h) for h in ("a:1", "[::1]:1", "::1", "A", "a:b")] == ["a", "::1", "::1", "a", "a:b"]
    assert [is_loopback(h) for h in ("127.8.8.8", "::1", "localhost", "::", "10.0.0.1", "example.com")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
