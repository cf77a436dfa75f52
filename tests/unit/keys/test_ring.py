"""Who is let in: keys of the environment and of the file, their scopes, and what happens when the file changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.keys import ALL_SCOPES, KeyRing
from shared.keys.key import Key, Scope
from shared.keys.store import KeyFile
from shared.kit.errors import SettingsError
from shared.web.errors import ApiError

NOW = datetime.now(UTC)
EDITOR: frozenset[Scope] = frozenset({"complete", "feedback"})


class Watched:
    """A ring over a file, its clocks and its count of complaints."""

    def __init__(self, file: KeyFile) -> None:
        self.file = file
        self.complaints = 0
        self.now_s, self.wall_s = 100.0, NOW.timestamp()
        self.ring = KeyRing(
            {}, file, on_file_error=self.complain, monotonic=lambda: self.now_s, clock=lambda: self.wall_s
        )

    def complain(self) -> None:
        self.complaints += 1

    def lets_in(self, secret: str) -> bool:
        try:
            self.ring.authenticate(f"Bearer {secret}", None, "complete")
        except ApiError as error:
            if error.status != 401:
                raise
            return False
        return True


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    file = KeyFile(tmp_path / "keys.json")
    file.add("first", None, EDITOR, NOW)
    return Watched(file)


def refusal(call: Callable[[], Key]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def test_environment_keys_are_found_by_bearer_or_header_and_bound_to_their_project() -> None:
    ring = KeyRing.open("alpha:red, beta")
    alpha = ring.authenticate("Bearer alpha", None, "complete")
    beta = ring.authenticate(None, "beta", "admin")
    assert alpha.key_id != beta.key_id
    assert "alpha" not in alpha.key_id
    assert alpha.scopes == ALL_SCOPES
    assert alpha.project() == alpha.project("red") == "red"
    assert (beta.project("blue"), beta.project()) == ("blue", "default")
    with pytest.raises(ApiError) as caught:
        alpha.project("blue")
    assert (caught.value.status, caught.value.code) == (403, "wrong_project")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic alpha", "alpha"])
def test_anything_else_is_401(header: str | None) -> None:
    error = refusal(lambda: KeyRing.open("alpha").authenticate(header, None, "complete"))
    assert (error.status, error.code) == (401, "invalid_api_key")


@given(header=st.text(), api_key=st.none() | st.text())
def test_no_header_does_anything_but_401(header: str, api_key: str | None) -> None:
    assert refusal(lambda: KeyRing.open("x" * 40).authenticate(header, api_key, "complete")).status == 401


def test_neither_keys_nor_a_file_is_a_setting_to_change() -> None:
    with pytest.raises(SettingsError, match=r"TABWISE_KEYS_FILE.*TABWISE_API_KEYS"):
        KeyRing.open(" , ")


def test_without_any_key_the_refusal_says_how_to_make_one(tmp_path: Path) -> None:
    ring = KeyRing.open("", str(tmp_path / "keys.json"))
    error = refusal(lambda: ring.authenticate("Bearer x", None, "complete"))
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert "make keys NEW=" in error.message


def test_both_sources_add_up(tmp_path: Path) -> None:
    stored, secret = KeyFile(tmp_path / "keys.json").add("alice", "team-a", EDITOR, NOW)
    ring = KeyRing.open("alpha", str(tmp_path / "keys.json"))
    assert ring.authenticate("Bearer alpha", None, "admin").key_id.startswith("key-")
    alice = ring.authenticate(f"Bearer {secret}", None, "feedback")
    assert (alice.key_id, alice.name, alice.project_id, alice.scopes) == (stored.id, "alice", "team-a", EDITOR)


def test_scopes(tmp_path: Path) -> None:
    _, secret = KeyFile(tmp_path / "keys.json").add("bot", None, frozenset({"feedback"}), NOW)
    ring = KeyRing.open("", str(tmp_path / "keys.json"))
    assert ring.authenticate(None, secret, "admin", "feedback").name == "bot"
    error = refusal(lambda: ring.authenticate(None, secret, "complete"))
    assert (error.status, error.code, error.type) == (403, "missing_scope", "permission_error")
    assert "scope complete, and has feedback" in error.message


def test_a_key_of_another_server_is_not_ours(watched: Watched, tmp_path: Path) -> None:
    _, elsewhere = KeyFile(tmp_path / "other.json").add("first", None, EDITOR, NOW)
    assert not watched.lets_in(elsewhere)


def test_new_and_revoked_keys_count_within_a_second(watched: Watched) -> None:
    stored, secret = watched.file.add("second", None, EDITOR, NOW)
    assert not watched.lets_in(secret)
    watched.now_s += 1
    assert watched.lets_in(secret)
    watched.file.revoke(stored.id, NOW)
    watched.now_s += 1
    error = refusal(lambda: watched.ring.authenticate(None, secret, "complete"))
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert "revoked" in error.message


def test_the_file_is_looked_at_once_a_second(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def count(path: Path) -> tuple[int, int, int, int]:
        nonlocal looks
        looks += 1
        return (0, 0, 0, looks)

    monkeypatch.setattr("shared.keys.ring._stamp", count)
    for _ in range(50):
        watched.lets_in("x")
    assert looks == 0
    watched.now_s += 1
    watched.lets_in("x")
    before = looks
    for _ in range(50):
        watched.lets_in("x")
    assert looks == before > 0


def test_a_key_expires_without_the_file_changing(watched: Watched) -> None:
    _, secret = watched.file.add("guest", None, EDITOR, NOW, NOW + timedelta(hours=1))
    watched.now_s += 1
    assert watched.lets_in(secret)
    watched.wall_s += 3600
    error = refusal(lambda: watched.ring.authenticate(None, secret, "complete"))
    assert error.status == 401
    assert "expired" in error.message


@pytest.mark.parametrize("harm", ["half", "empty", "gone", "folder"])
def test_a_broken_file_leaves_the_last_good_keys(watched: Watched, harm: str) -> None:
    _, secret = watched.file.add("second", None, EDITOR, NOW)
    watched.now_s += 1
    assert watched.lets_in(secret)
    good = watched.file.path.read_bytes()
    _break(watched.file.path, harm)
    for _ in range(3):
        watched.now_s += 1
        assert watched.lets_in(secret)
    assert watched.complaints == 1
    if harm == "folder":
        watched.file.path.rmdir()
    watched.file.path.write_bytes(good)
    _, newest = watched.file.add("third", None, EDITOR, NOW)
    watched.now_s += 1
    assert watched.lets_in(newest)
    assert watched.complaints == 1


def _break(path: Path, harm: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if harm == "half":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "empty":
        path.touch()
    elif harm == "folder":
        path.mkdir()


@pytest.mark.parametrize("harm", ["half", "empty", "folder"])
def test_a_broken_file_at_the_start_is_a_setting_to_change(watched: Watched, harm: str) -> None:
    _break(watched.file.path, harm)
    with pytest.raises(SettingsError, match=r"TABWISE_KEYS_FILE: .*keys\.json"):
        KeyRing.open("alpha", str(watched.file.path))


def test_a_file_that_comes_later_counts(tmp_path: Path) -> None:
    watched = Watched(KeyFile(tmp_path / "keys.json"))
    assert not watched.lets_in("x")
    _, secret = watched.file.add("alice", None, EDITOR, NOW)
    watched.now_s += 1
    assert watched.lets_in(secret)
    assert watched.complaints == 0
