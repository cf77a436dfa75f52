"""Body limit and the one error shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from shared.kit.errors import TemporaryError
from shared.web.body_limit import BodyLimit
from shared.web.errors import install_error_handlers
from shared.web.probes import install_probes


class Body(BaseModel):
    number: int


def make_app() -> FastAPI:
    app = FastAPI()
    install_error_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=100)

    async def ready() -> None:
        raise TemporaryError("the engine is away")

    install_probes(app, CollectorRegistry(), ready)

    @app.post("/number")
    async def number(body: Body) -> int:
        return body.number

    @app.post("/raw")
    async def raw(request: Request) -> int:
        return len(await request.body())

    @app.get("/boom")
    async def boom() -> None:
        raise RuntimeError("secret detail")

    return app


@pytest.fixture
def client() -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_wrong_types_name_the_field_and_never_the_value(client: httpx.AsyncClient) -> None:
    answer = await client.post("/number", json={"number": "def secret(): pass"})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "invalid_body"
    assert error["param"] == "body.number"
    assert "secret" not in answer.text


async def test_every_failure_has_the_one_shape(client: httpx.AsyncClient) -> None:
    for answer, status, code in [
        (await client.get("/nowhere"), 404, "not_found"),
        (await client.get("/number"), 405, "method_not_allowed"),
        (await client.get("/boom"), 500, "internal_error"),
    ]:
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == code
        assert "secret" not in answer.text


async def test_a_body_over_the_limit_is_refused_declared_or_not(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 50

    for body in (b"x" * 101, chunks()):
        answer = await client.post("/raw", content=body)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
    assert (await client.post("/raw", content=b"x" * 100)).json() == 100


async def test_probes(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).json() == {"status": "ok"}
    answer = await client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "the engine is away"
    assert (await client.get("/metrics")).status_code == 200


def test_errors_can_be_awaited_concurrently() -> None:
    async def both() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app()), base_url="http://test") as client:
            answers = await asyncio.gather(*(client.post("/number", json={"number": n}) for n in range(5)))
        return [answer.json() for answer in answers]

    assert asyncio.run(both()) == [0, 1, 2, 3, 4]
