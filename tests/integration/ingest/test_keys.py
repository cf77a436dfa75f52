"""Which keys may send feedback, and which may read the figures."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from services.ingest.app import create_app
from services.ingest.settings import IngestSettings
from shared.keys import Scope
from shared.keys.store import KeyFile
from tests.factories import continue_event, rlinf_event

SUBMIT, CONTINUE, STATS = "/api/training/submit", "/v1/events/continue", "/v1/stats"


@pytest.mark.parametrize(
    ("scopes", "may_send", "may_read"),
    [({"feedback"}, True, True), ({"admin"}, False, True), ({"complete"}, False, False)],
)
async def test_scopes(
    settings: IngestSettings, tmp_path: Path, scopes: set[Scope], may_send: bool, may_read: bool
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    _, secret = file.add("alice", "team-a", frozenset(scopes), datetime.now(UTC))
    app = create_app(settings.model_copy(update={"api_keys": "", "keys_file": str(file.path)}))
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingest", headers=headers) as http:
        for answer in (
            await http.post(SUBMIT, json=rlinf_event()),
            await http.post(CONTINUE, json=continue_event()),
        ):
            assert answer.is_success == may_send, answer.text
            assert may_send or (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_scope")
        stats = await http.get(STATS)
        assert stats.status_code == (200 if may_read else 403)
    await app.state.engine.dispose()


async def test_without_any_key_it_is_ready_and_says_how_to_make_one(settings: IngestSettings, tmp_path: Path) -> None:
    app = create_app(settings.model_copy(update={"api_keys": "", "keys_file": str(tmp_path / "keys.json")}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ingest") as http:
        assert (await http.get("/ready")).status_code == 200
        answer = await http.post(SUBMIT, json=rlinf_event(), headers={"Authorization": "Bearer x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert "make keys NEW=" in answer.json()["error"]["message"]
    await app.state.engine.dispose()
