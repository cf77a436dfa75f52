"""Acceptance figures out of the ledger: what is counted, who may read what, and how it is queried."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from sqlalchemy import text

from services.ingest import acceptance_table
from services.ingest.acceptance import DIMENSIONS, Wish, pseudonym
from services.ingest.acceptance_queries import parameters, statement
from services.ingest.app import create_app
from services.ingest.settings import IngestSettings
from shared.contracts.generation import Generation
from shared.keys import Scope
from shared.keys.store import KeyFile
from tests.factories import KEY_ID, fim_prompt, make_generation
from tests.integration.ingest.conftest import HEADERS, Room

ACCEPTANCE = "/v1/acceptance"


async def ask(room: Room, headers: dict[str, str] | None = None, /, **query: Any) -> dict[str, Any]:
    answer = await room.http.get(ACCEPTANCE, params=query, headers=HEADERS | (headers or {}))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@asynccontextmanager
async def another(room: Room, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A second ingest on the same ledger, with other settings."""
    app = create_app(room.settings.model_copy(update=settings))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest", headers=HEADERS) as http:
        yield http
    await app.state.engine.dispose()


async def made(room: Room, number: int, **changes: Any) -> Generation:
    generation = make_generation(f"return {number}", prompt=fim_prompt(f"x{number} = "), **changes)
    await room.generated(generation)
    return generation


async def tell(room: Room, generation: Generation, outcome: str = "accepted", **changes: Any) -> None:
    body = {"completion_id": generation.request_id, "choice_index": generation.choice_index, "outcome": outcome}
    answer = await room.http.post("/v1/feedback", json=body | changes, headers=HEADERS)
    assert answer.status_code == 200, answer.text


async def finish(room: Room) -> None:
    for _ in range(2):
        await room.work()
        room.clock.advance(60)
    await room.work()


async def history(room: Room) -> list[Generation]:
    """Accepted, partly accepted, rejected, shown, and never told of."""
    generations = [await made(room, number, policy_version=number // 2) for number in range(5)]
    await tell(room, generations[0], language="python")
    await tell(room, generations[1], accepted_chars=6, language="python")
    await tell(room, generations[2], "dismissed", language="go")
    await tell(room, generations[3], "shown", language="go")
    await finish(room)
    return generations


async def test_the_figures(room: Room) -> None:
    await history(room)
    (group,) = (await ask(room))["groups"]
    rewards = [0.75, 0.75, -0.5]
    assert group == {
        "group": {"project": "default"},
        "requested": 5,
        "share_shown": 0.8,
        "shown": 4,
        "accepted": 1,
        "partially_accepted": 1,
        "rejected": 1,
        "undecided": 1,
        "acceptance_rate": 0.5,
        "rate_low": pytest.approx(0.15, abs=1e-2),
        "rate_high": pytest.approx(0.85, abs=1e-2),
        "mean_reward": pytest.approx(sum(rewards) / 3),
        "accepted_chars": len("return 0") + len("return"),
    }


async def test_grouped(room: Room) -> None:
    await history(room)

    async def shown(group_by: str, **query: str) -> list[tuple[Any, ...]]:
        groups = (await ask(room, group_by=group_by, **query))["groups"]
        return [(*one["group"].values(), one["requested"], one["shown"], one["accepted"]) for one in groups]

    assert await shown("version") == [(0, 2, 2, 1), (1, 2, 2, 0), (2, 1, 0, 0)]
    assert await shown("language") == [("go", None, 2, 0), ("python", None, 2, 1)]
    assert await shown("client") == [("openai", 5, 4, 1)]
    assert await shown("developer") == [(pseudonym(KEY_ID), 5, 4, 1)]
    assert await shown("") == [(5, 4, 1)]
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    assert await shown("project", bucket="day") == [(today.isoformat().replace("+00:00", "Z"), "default", 5, 4, 1)]
    everything = await ask(room, group_by=",".join(DIMENSIONS), bucket="hour")
    assert sum(one["shown"] for one in everything["groups"]) == 4


async def test_several_choices_and_displays(room: Room) -> None:
    """One request with two choices, shown twice: once a choice was accepted, once nothing is known but the display."""
    first = await made(room, 1)
    second = make_generation("b", prompt=first.prompt, request_id=first.request_id, choice_index=1)
    await room.generated(second)
    await room.send_tabby(first, "view", view_id="v1")
    await room.send_tabby(second, "select", view_id="v1")
    await room.send_tabby(first, "view", view_id="v2")
    await finish(room)
    (group,) = (await ask(room))["groups"]
    assert (group["requested"], group["share_shown"], group["shown"], group["accepted"]) == (1, 1.0, 2, 1)


async def test_a_period_is_one_of_requests(room: Room) -> None:
    old = await made(room, 1, created_at=datetime.now(UTC) - timedelta(days=10))
    await made(room, 2)
    await tell(room, old)
    await finish(room)
    (recent,) = (await ask(room))["groups"]
    assert (recent["requested"], recent["shown"]) == (1, 0)
    (longer,) = (await ask(room, since="30d", until="5d"))["groups"]
    assert (longer["requested"], longer["shown"], longer["accepted"]) == (1, 1, 1)
    assert (await ask(room, since="2d", until="1d"))["groups"] == []


async def test_what_silent_clients_wrote_is_no_display(room: Room) -> None:
    generation = await made(room, 1)
    await tell(room, generation)
    await finish(room)
    async with room.sessions.begin() as session:
        await session.execute(text("UPDATE outcomes SET state = 'settled'"))
    (group,) = (await ask(room))["groups"]
    assert (group["requested"], group["shown"], group["share_shown"]) == (1, 0, 0.0)


async def test_too_many_groups_are_cut_and_it_says_so(room: Room) -> None:
    for number in range(4):
        await made(room, number, policy_version=number)
    async with another(room, figures_max_groups=3) as http:
        found = (await http.get(ACCEPTANCE, params={"group_by": "version"})).json()
    assert (len(found["groups"]), found["truncated"]) == (3, True)


async def test_as_csv(room: Room) -> None:
    await history(room)
    answer = await room.http.get(
        ACCEPTANCE, params={"group_by": "language,version"}, headers=HEADERS | {"Accept": "text/csv"}
    )
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["language"], row["version"], row["shown"], row["requested"]) for row in rows] == [
        ("go", "1", "2", ""),
        ("python", "0", "2", ""),
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"since": "soon"}, "since"),
        ({"since": "1h", "until": "2h"}, "until"),
        ({"since": "3000d"}, "since"),
        ({"group_by": "file"}, "group_by"),
        ({"bucket": "minute"}, "query.bucket"),
        ({"project": "a b"}, "query.project"),
    ],
)
async def test_what_cannot_be_asked(room: Room, query: dict[str, str], param: str) -> None:
    answer = await room.http.get(ACCEPTANCE, params=query, headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, param)


async def test_a_query_that_takes_too_long_is_503(room: Room) -> None:
    async with another(room, figures_timeout_s=0.2) as http, room.sessions.begin() as session:
        await session.execute(text("LOCK TABLE generations IN ACCESS EXCLUSIVE MODE"))
        answer = await http.get(ACCEPTANCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "query_too_slow")


@pytest.mark.parametrize("by", [(), DIMENSIONS])
async def test_it_reads_the_time_from_an_index(room: Room, by: Any) -> None:
    wish = Wish(by, datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC), "hour" if by else None, "team")
    async with room.sessions() as session:
        await session.execute(text("SET LOCAL enable_seqscan = off"))
        explained = text(f"EXPLAIN {statement(wish).text}")
        plan = (await session.scalars(explained, parameters(wish, room.settings))).all()
    assert any("Index Only Scan using generations_" in line and "_created_at_" in line for line in plan)
    assert any("ix_outcomes_" in line for line in plan)


Ask = Callable[..., Any]


@pytest.fixture
async def keyed(room: Room, settings: IngestSettings, tmp_path: Path) -> AsyncIterator[Ask]:
    """Asks with keys of a file: `ask(name, scopes, project)`, after each of two developers was served."""
    file = KeyFile(tmp_path / "keys.json")
    secrets: dict[str, tuple[str, str]] = {}
    for name, project, scopes in (
        ("alice", "team-a", {"feedback"}),
        ("=bob", "team-b", {"feedback"}),
        ("lead", "team-a", {"admin"}),
        ("root", None, {"admin"}),
        ("editor", None, {"complete"}),
    ):
        granted: set[Scope] = scopes  # type: ignore[assignment]
        stored, secret = file.add(name, project, frozenset(granted), datetime.now(UTC))
        secrets[name] = (stored.id, secret)
    for name, project in (("alice", "team-a"), ("=bob", "team-b")):
        await made(room, len(name), key_id=secrets[name][0], project_id=project)
    changed = {"api_keys": "", "keys_file": str(file.path), "projects_with_names": "team-x, team-b"}
    app = create_app(settings.model_copy(update=changed))

    async def ask_as(name: str, accept: str = "application/json", **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secrets[name][1]}", "Accept": accept}
        return await http.get(ACCEPTANCE, params={"group_by": "developer"} | query, headers=headers)

    ask_as.ids = {name: one[0] for name, one in secrets.items()}  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingest") as http:
        yield ask_as
    await app.state.engine.dispose()


def developers(answer: httpx.Response) -> set[str]:
    return {one["group"]["developer"] for one in answer.json()["groups"]}


async def test_who_reads_what_and_who_is_named(keyed: Any) -> None:
    alice = pseudonym(keyed.ids["alice"])
    assert developers(await keyed("root")) == {alice, "=bob"}
    assert developers(await keyed("root", project="team-b")) == {"=bob"}
    assert developers(await keyed("lead")) == {alice}
    assert developers(await keyed("alice")) == {alice}
    assert (await keyed("lead", project="team-b")).status_code == 403
    assert (await keyed("editor")).status_code == 403
    assert "'=bob" in (await keyed("root", accept="text/csv")).text


async def test_as_a_table(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    await history(room)
    found = await acceptance_table._read(room.settings, Wish(("project",), *_last_day()))
    Console(width=80).print(acceptance_table._table(found))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "default" in printed
    assert "50.0%" in printed
    assert "15.0%–85.0%" in printed


def _last_day() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - timedelta(days=1), now + timedelta(minutes=5)
