"""`/health` (the process lives), `/ready` (it can do its work) and `/metrics`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from shared.kit.errors import TemporaryError

Check = Callable[[], Awaitable[None]]


def install_probes(app: FastAPI, registry: CollectorRegistry, ready: Check) -> None:
    """`ready` raises `TemporaryError` with the reason while the service cannot work."""

    @app.get("/health", include_in_schema=False)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", include_in_schema=False)
    async def is_ready() -> JSONResponse:
        try:
            await ready()
        except TemporaryError as error:
            return JSONResponse({"status": "not ready", "reason": str(error)}, status_code=503)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
