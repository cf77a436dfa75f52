"""The keys file: what is in it, that it is written whole, and by one at a time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from filelock import FileLock

from shared.keys.key import Scope
from shared.keys.store import SECRET_PATTERN, KeyFile, StoredKey, digest_of
from shared.kit.errors import InvalidMessage, TemporaryError

NOW = datetime(2026, 11, 21, tzinfo=UTC)
EDITOR: frozenset[Scope] = frozenset({"complete", "feedback"})


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys" / "keys.json")


def test_no_file_is_no_keys(file: KeyFile) -> None:
    assert file.read() == ()


def test_a_new_key_is_kept_as_its_digest_alone(file: KeyFile) -> None:
    stored, secret = file.add("alice", "team-a", EDITOR, NOW, NOW + timedelta(days=1))
    assert file.read() == (stored,)
    assert re.fullmatch(SECRET_PATTERN, secret)
    assert stored.sha256 == digest_of(secret)
    content = file.path.read_text()
    assert secret not in content
    assert secret.rpartition("_")[2] not in content
    assert json.loads(content)["keys"][0]["scopes"] == ["complete", "feedback"]


def test_ids_and_secrets_are_never_the_same(file: KeyFile) -> None:
    made = [file.add("a", None, EDITOR, NOW) for _ in range(20)]
    assert len({stored.id for stored, _ in made}) == len({secret for _, secret in made}) == 20


def test_only_we_may_read_it_and_nothing_is_left_over(file: KeyFile) -> None:
    file.add("alice", None, EDITOR, NOW)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def test_a_reader_that_has_it_open_keeps_the_whole_old_file(file: KeyFile) -> None:
    file.add("alice", None, EDITOR, NOW)
    with file.path.open() as before:
        file.add("bob", None, EDITOR, NOW)
        assert len(json.load(before)["keys"]) == 1


def test_revoked_twice_is_revoked_once(file: KeyFile) -> None:
    stored, _ = file.add("alice", None, EDITOR, NOW)
    file.revoke(stored.id, NOW)
    file.revoke(stored.id, NOW + timedelta(days=1))
    (after,) = file.read()
    assert (after.revoked_at, after.state(NOW)) == (NOW, "revoked")


def test_states() -> None:
    stored = StoredKey(
        id="1", name="n", scopes=EDITOR, sha256="0" * 64, created_at=NOW - timedelta(days=1), expires_at=NOW
    )
    assert stored.state(NOW - timedelta(seconds=1)) == "valid"
    assert stored.state(NOW) == "expired"


def test_an_unknown_key_is_not_revoked(file: KeyFile) -> None:
    with pytest.raises(InvalidMessage, match="there is no key 'nobody'"):
        file.revoke("nobody", NOW)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version": 2, "keys": []}',
        b'{"version": 1, "keys": [{"id": "a"}]}',
        b'{"version": 1, "keys": [], "more": 1}',
    ],
)
def test_anything_else_is_no_keys_file_and_is_not_overwritten(file: KeyFile, content: bytes) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    with pytest.raises(InvalidMessage, match="is no keys file"):
        file.read()
    with pytest.raises(InvalidMessage):
        file.add("alice", None, EDITOR, NOW)
    assert file.path.read_bytes() == content


def test_the_complaint_does_not_quote_the_file(file: KeyFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text('{"version": 1, "keys": [{"id": "a", "secret": "tabwise_leaked"}]}')
    with pytest.raises(InvalidMessage) as caught:
        file.read()
    assert "leaked" not in str(caught.value)


def test_one_id_twice_is_refused(file: KeyFile) -> None:
    file.add("alice", None, EDITOR, NOW)
    content = json.loads(file.path.read_text())
    content["keys"] *= 2
    file.path.write_text(json.dumps(content))
    with pytest.raises(InvalidMessage, match="same id"):
        file.read()


def test_commands_at_the_same_time_lose_no_key(file: KeyFile) -> None:
    command = [sys.executable, "-m", "shared.keys", "create", "--file", str(file.path)]
    running = [
        subprocess.Popen([*command, f"dev{n}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for n in range(6)
    ]
    secrets = {process.communicate(timeout=60)[0].decode().strip() for process in running}
    assert {digest_of(secret) for secret in secrets} == {stored.sha256 for stored in file.read()}
    assert len(secrets) == 6


def test_a_lock_that_is_held_is_a_sentence(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.keys.store._LOCK_TIMEOUT_S", 0.05)
    file.path.parent.mkdir()
    with FileLock(f"{file.path}.lock"), pytest.raises(TemporaryError, match="another command"):
        file.add("alice", None, EDITOR, NOW)
