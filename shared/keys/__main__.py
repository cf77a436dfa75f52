"""`python -m shared.keys create|list|revoke`: the keys of a server, in the file of TABWISE_KEYS_FILE.

Running services see a change within a second or two; nothing needs a restart.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from shared.keys.key import Scope
from shared.keys.store import PROJECT_PATTERN, KeyFile, StoredKey
from shared.kit.clock import utc_now
from shared.kit.errors import InvalidMessage, SettingsError, TabwiseError
from shared.kit.settings import ServiceSettings

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
File = Annotated[Path | None, typer.Option("--file", help="the keys file; also TABWISE_KEYS_FILE")]

_WRONG_INPUT = 2
_STYLES = {"valid": "green", "expired": "yellow", "revoked": "red"}


class KeysSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    keys_file: str = ""


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="whose key it is, e.g. alice")],
    project: Annotated[
        str | None, typer.Option(help="bind the key to this project; else a request may name any")
    ] = None,
    scopes: Annotated[str, typer.Option(help="of complete, feedback, admin; with commas")] = "complete,feedback",
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="the key expires after so many days")] = None,
    file: File = None,
) -> None:
    """Make a key and print it: the only time that it can be seen. Editors need complete and feedback."""
    with _sentences():
        now = utc_now()
        expires_at = None if days is None else now + timedelta(days=days)
        key, secret = _open(file).add(name, _project(project), _scopes(scopes), now, expires_at)
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    notes.print(
        f"Key {key.id} of {key.name}: {_what(key)}. It is shown this once; only its digest is kept.", markup=False
    )
    print(secret)


@app.command("list")
def list_keys(file: File = None) -> None:
    """Show every key, oldest first. Secrets are not kept, so they cannot be shown."""
    with _sentences():
        keys = _open(file)
        stored = keys.read()
    if not stored:
        print(f"no key in {keys.path} yet; make one with: python -m shared.keys create NAME")
        return
    Console(width=None if sys.stdout.isatty() else 140).print(_table(stored, utc_now()))


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="its id, as `list` shows it")], file: File = None) -> None:
    """Let a key open nothing from now on. It stays in the list, and its id is never given out again."""
    with _sentences():
        key = _open(file).revoke(key_id, utc_now())
    print(f"key {key.id} of {key.name} is revoked")


def _open(file: Path | None) -> KeyFile:
    if file is not None:
        return KeyFile(file.expanduser())
    configured = KeysSettings().keys_file
    if not configured:
        raise SettingsError("say which file: --file PATH, or TABWISE_KEYS_FILE as the services have it")
    return KeyFile(Path(configured).expanduser())


def _project(text: str | None) -> str | None:
    if text is not None and not re.match(PROJECT_PATTERN, text):
        raise InvalidMessage("a project is 1 to 64 letters, digits, `.`, `_`, `-`, and begins with a letter or digit")
    return text


def _scopes(text: str) -> frozenset[Scope]:
    known: dict[str, Scope] = {scope: scope for scope in get_args(Scope)}
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for part in asked:
        if part not in known:
            raise InvalidMessage(f"there is no scope {part!r}; the scopes are {', '.join(known)}")
    if not asked:
        raise InvalidMessage(f"a key needs a scope: {', '.join(known)}")
    return frozenset(known[part] for part in asked)


def _what(key: StoredKey) -> str:
    project = "any project" if key.project is None else f"project {key.project}"
    until = "" if key.expires_at is None else f", until {_day(key.expires_at)}"
    return f"{', '.join(sorted(key.scopes))}; {project}{until}"


def _table(keys: tuple[StoredKey, ...], now: datetime) -> Table:
    table = Table("id", "name", "project", "scopes", "created", "expires", "state")
    for key in keys:
        state = key.state(now)
        expires = "never" if key.expires_at is None else _day(key.expires_at)
        scopes = ", ".join(sorted(key.scopes))
        row = (key.id, key.name, key.project or "any", scopes, _day(key.created_at), expires)
        table.add_row(*(cell.replace("[", r"\[") for cell in row), f"[{_STYLES[state]}]{state}[/]")
    return table


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        _fail(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except TabwiseError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename} cannot be used ({error.strerror}): set TABWISE_KEYS_FILE to a file of this account")


def _fail(sentence: str) -> None:
    typer.secho(f"keys: {sentence}", fg="red", err=True)
    raise typer.Exit(_WRONG_INPUT) from None


if __name__ == "__main__":
    sys.exit(app())
