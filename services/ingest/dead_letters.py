"""`python -m services.ingest.dead_letters list|show|requeue|drop`: what could never be processed, and a way back.

In: the dead letters of both streams, where the recorder and the trainer put what is poison to them, with the reason.
Out: `requeue` moves them back to the end of their stream, bytes unchanged. Their consumers know a message by its id, so
that requeueing what was processed after all is harmless. They hold code, which is shown only where it is asked for.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from shared.contracts.names import STREAM_EXPERIENCE, STREAM_GENERATIONS
from shared.kit.errors import InvalidMessage, SettingsError, TabwiseError
from shared.kit.settings import ServiceSettings
from shared.streams import DeadLetter, RedisStreams, Streams

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

STREAMS = {"generations": STREAM_GENERATIONS, "experience": STREAM_EXPERIENCE}
PAGE = 100
WRONG_INPUT = 2
HARMLESS = ("generation_id", "experience_id", "request_id", "key_id", "project_id", "created_at", "feedback_at")
"""Fields of either message that say whose it is and when; never code."""
T = TypeVar("T")
PLAIN = re.compile(r"[A-Za-z0-9._:+-]{1,80}")

Action = Callable[[str, str], Coroutine[Any, Any, bool]]
"""Of a stream and an entry id: whether it was there."""

Which = Annotated[str | None, typer.Argument(help="its id, as `list` shows it")]
All = Annotated[bool, typer.Option("--all", help="all of them")]
Reason = Annotated[str | None, typer.Option(help="those whose reason begins so, e.g. invalid_generation")]
Stream = Annotated[str | None, typer.Option(help="generations or experience; both where left out")]


class DeadLetterSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    redis_url: str = "redis://127.0.0.1:6379/0"


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter and where it is from: `generations` or `experience`."""

    origin: str
    letter: DeadLetter

    @property
    def id(self) -> str:
        """What the commands call it."""
        return f"{self.origin}/{self.letter.entry_id}"

    @property
    def stream(self) -> str:
        """The stream that it goes back to."""
        return STREAMS[self.origin]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters a command is about."""

    id: str | None = None
    reason: str | None = None
    origin: str | None = None

    def has(self, found: Found) -> bool:
        """Whether it is one of them. An id may be given without its stream."""
        return (
            (self.id is None or self.id in (found.id, found.letter.entry_id))
            and (self.reason is None or found.letter.reason.startswith(self.reason))
            and (self.origin is None or self.origin == found.origin)
        )


async def find(streams: Streams, selection: Selection) -> list[Found]:
    """Those that are dead now, oldest first of each stream."""
    found = []
    for origin, stream in STREAMS.items():
        async for letter in _letters(streams, stream):
            one = Found(origin, letter)
            if selection.has(one):
                found.append(one)
    return found


async def _letters(streams: Streams, stream: str) -> AsyncIterator[DeadLetter]:
    after: str | None = None
    while page := await streams.dead_letters(stream, after=after, count=PAGE):
        for letter in page:
            yield letter
        after = page[-1].entry_id


def harmless(payload: bytes) -> dict[str, str]:
    """What of a payload may be shown: ids and times, as far as they look like ids and times."""
    try:
        message = json.loads(payload)
    except ValueError:
        return {}
    if not isinstance(message, dict):
        return {}
    known = {field: message.get(field) for field in HARMLESS}
    return {name: value for name, value in known.items() if isinstance(value, str) and PLAIN.fullmatch(value)}


@app.command("list")
def list_letters(stream: Stream = None, reason: Reason = None) -> None:
    """Show all dead letters: id, reason, age, size. No code."""
    found = _run(lambda streams: find(streams, Selection(reason=reason, origin=_origin(stream))))
    if not found:
        print("no dead letters")
        return
    table = Table("id", "reason", "age", "bytes", "back to")
    for one in found:
        age = _age(time.time() - one.letter.dead_since_s)
        table.add_row(one.id, _plain(one.letter.reason), age, str(len(one.letter.payload)), one.stream)
    _console().print(table)


@app.command()
def show(
    letter_id: Which = None,
    show_code: Annotated[bool, typer.Option("--show-code", help="also the payload: it holds code")] = False,
) -> None:
    """Show one dead letter; its payload, which holds code, only with --show-code."""
    for one in _some(Selection(id=letter_id), letter_id is not None):
        letter = one.letter
        facts = {"id": one.id, "back to": one.stream, "reason": letter.reason, "bytes": str(len(letter.payload))}
        facts["age"] = _age(time.time() - letter.dead_since_s)
        for name, value in (facts | harmless(letter.payload)).items():
            print(f"{name}: {value}")
        if show_code:
            print(letter.payload.decode(errors="backslashreplace"))


@app.command()
def requeue(letter_id: Which = None, all_: All = False, reason: Reason = None, stream: Stream = None) -> None:
    """Put dead letters back to the end of their stream: one, all, or those with a reason."""
    _each(Selection(letter_id, reason, _origin(stream)), all_, lambda streams: streams.requeue, "requeued")


@app.command()
def drop(letter_id: Which = None, all_: All = False, reason: Reason = None, stream: Stream = None) -> None:
    """Delete dead letters for good: one, all, or those with a reason."""
    _each(Selection(letter_id, reason, _origin(stream)), all_, lambda streams: streams.drop_dead, "dropped")


def _each(selection: Selection, all_: bool, action: Callable[[Streams], Action], done: str) -> None:
    found = _some(selection, all_ or selection.id is not None or selection.reason is not None)

    async def act(streams: Streams) -> int:
        return sum([await action(streams)(one.stream, one.letter.entry_id) for one in found])

    print(f"{done}: {_run(act)}")


def _some(selection: Selection, asked: bool) -> list[Found]:
    """What is selected. Refuses to take "nothing said" for "all", and an id that is not there."""
    with _sentences():
        if not asked:
            raise InvalidMessage("say which: an id as `list` shows it, --reason or --all")
    found = _run(lambda streams: find(streams, selection))
    with _sentences():
        if selection.id is not None and not found:
            raise InvalidMessage(f"there is no dead letter {selection.id}")
    return found


def _origin(stream: str | None) -> str | None:
    with _sentences():
        origin = None if stream is None else stream.removeprefix("tabwise:")
        if origin is not None and origin not in STREAMS:
            raise InvalidMessage(f"--stream is one of {', '.join(STREAMS)}")
        return origin


def _run(work: Callable[[Streams], Coroutine[Any, Any, T]]) -> T:
    async def connected() -> T:
        async with _streams() as streams:
            return await work(streams)

    with _sentences():
        return asyncio.run(connected())


@asynccontextmanager
async def _streams() -> AsyncIterator[RedisStreams]:
    try:
        streams = RedisStreams.from_url(DeadLetterSettings().redis_url)
    except ValueError as error:
        raise SettingsError(f"TABWISE_REDIS_URL: {error}") from None
    try:
        yield streams
    finally:
        await streams.close()


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except TabwiseError as error:
        typer.secho(f"dead letters: {error}", fg="red", err=True)
        raise typer.Exit(WRONG_INPUT) from None


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


if __name__ == "__main__":
    app()
