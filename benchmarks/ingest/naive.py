"""What most would write: a FastAPI handler that validates the body and inserts one row in one transaction.

The same body model and the same row as ingest's, on the same pool of connections, uvicorn with uvloop and httptools.
`python -m benchmarks.ingest.naive DATABASE_URL PORT`
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ConfigDict
from sqlalchemy.dialects.postgresql import insert

from benchmarks.ingest.event import KEY, ROUTE
from services.ingest.protocols.common import evidence_of
from services.ingest.protocols.continue_ import AutocompleteData, Envelope
from shared import fim
from shared.db.engine import async_sessions, make_async_engine
from shared.db.models import FeedbackEventRow

bearer = HTTPBearer()


class Data(AutocompleteData):
    """Keeps the client's other fields, of which some are stored as evidence."""

    model_config = ConfigDict(extra="allow")


class Event(Envelope):
    """The whole body."""

    model_config = ConfigDict(extra="allow")
    data: Data  # type: ignore[assignment]


def key_of(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> str:
    """The key's id, or 401."""
    if credentials.credentials != KEY:
        raise HTTPException(401)
    return f"key-{hashlib.sha256(KEY.encode()).hexdigest()[:10]}"


def create_app(database_url: str) -> FastAPI:
    """One route."""
    sessions = async_sessions(make_async_engine(database_url))
    app = FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post(ROUTE, status_code=204)
    async def event(event: Event, key_id: Annotated[str, Depends(key_of)]) -> None:
        statement = insert(FeedbackEventRow).values(columns(event, key_id)).on_conflict_do_nothing()
        async with sessions.begin() as session:
            await session.execute(statement)

    return app


def columns(event: Event, key_id: str) -> dict[str, Any]:
    """The row of one event."""
    data, now = event.data, datetime.now(UTC)
    digest = hashlib.sha256(f"{key_id}\n{data.completionId}".encode()).hexdigest()
    return {
        "dedupe_key": f"{digest}:{'accepted' if data.accepted else 'rejected'}",
        "source": "continue",
        "project_id": "default",
        "key_id": key_id,
        "client_completion_id": data.completionId,
        "accepted": data.accepted,
        "prompt_sha256": hashlib.sha256(data.prompt.encode()).digest(),
        "rendered_sha256": _rendered(data),
        "completion": data.completion,
        "filepath": data.filepath,
        "cache_hit": data.cacheHit,
        "display_ms": data.time,
        "client_time": data.timestamp,
        "received_at": now,
        "next_attempt_at": now,
        "evidence": evidence_of({"level": event.level}, event.model_extra or {}, data.model_extra or {}),
    }


def _rendered(data: AutocompleteData) -> bytes:
    return hashlib.sha256(fim.render("qwen", data.prefix or "", data.suffix or "").encode()).digest()


def main() -> None:
    """Serve until SIGTERM."""
    app = create_app(sys.argv[1])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="warning", backlog=2048)


if __name__ == "__main__":
    main()
