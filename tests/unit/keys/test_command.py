"""`python -m shared.keys` as an operator meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shared.keys import KeyRing
from shared.keys.__main__ import app
from shared.keys.store import KeyFile


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyFile:
    monkeypatch.setenv("TABWISE_KEYS_FILE", str(tmp_path / "keys.json"))
    return KeyFile(tmp_path / "keys.json")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_create_prints_the_secret_and_nothing_else_on_standard_output(file: KeyFile) -> None:
    result = run("create", "alice", "--project", "team-a", "--scopes", "complete,feedback", "--days", "30")
    assert result.exit_code == 0
    secret = result.stdout.strip()
    key = KeyRing.open("", str(file.path)).authenticate(f"Bearer {secret}", None, "complete")
    assert (key.name, key.project_id) == ("alice", "team-a")
    (stored,) = file.read()
    assert stored.expires_at is not None
    assert (stored.expires_at - stored.created_at).days == 30
    assert "shown this once" in result.stderr


def test_what_an_editor_needs_is_the_default(file: KeyFile) -> None:
    run("create", "alice")
    assert file.read()[0].scopes == {"complete", "feedback"}


def test_list_shows_states_and_no_secret(file: KeyFile) -> None:
    assert "make one with" in run("list").stdout
    secret = run("create", "alice [x]").stdout.strip()
    run("create", "bob")
    run("revoke", file.read()[1].id)
    shown = run("list").stdout
    assert all(word in shown for word in ("alice [x]", "bob", "valid", "revoked", "any", "complete, feedback"))
    assert secret not in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", "alice", "--scopes", "complete,root"), "there is no scope 'root'; the scopes are complete,"),
        (("create", "alice", "--scopes", " , "), "a key needs a scope"),
        (("create", "alice", "--project", "../etc"), "a project is 1 to 64 letters"),
        (("create", ""), "name: "),
        (("create", "x" * 101), "name: "),
        (("revoke", "nobody"), "there is no key 'nobody'"),
        (("create", "alice", "--file", "/proc/none/keys.json"), "set TABWISE_KEYS_FILE"),
    ],
)
def test_bad_input_is_one_sentence(file: KeyFile, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("keys: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert file.read() == ()


def test_without_the_setting_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABWISE_KEYS_FILE", raising=False)
    result = run("list")
    assert (result.exit_code, "TABWISE_KEYS_FILE" in result.stderr) == (2, True)
