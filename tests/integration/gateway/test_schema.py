"""The OpenAPI document describes every route, and nothing that fits it (or nearly does) is answered 5xx."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from services.gateway.app import create_app
from services.gateway.routes import MODELS
from services.gateway.settings import GatewaySettings
from shared.streams import MemoryStreams
from tests.fakes.engine import FakeEngine
from tests.integration.gateway.support import KEY

EXAMPLES = 30
DOCUMENT: dict[str, Any] = create_app(GatewaySettings(api_keys=KEY)).openapi()
PASSED_ON = ("/v1/chat/completions", "/v1/events")
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway on a real port, whose engine also stands for the chat server and for ingest: it answers them 404."""
    with FakeEngine(reply="ok") as engine, socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        app = create_app(
            GatewaySettings(api_keys=KEY, engine_urls=engine.url, ingest_url=engine.url, key_requests_per_minute=0),
            streams=MemoryStreams(),
        )
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_is_answered_5xx(case: schemathesis.Case[Any], url: str) -> None:
    case.headers["Authorization"] = f"Bearer {KEY}"
    answer = case.call(base_url=url, timeout=10)

    also: list[Any] = [] if case.path in PASSED_ON else [status_code_conformance, content_type_conformance]
    case.validate_response(answer, checks=[not_a_server_error, *also])
    if answer.status_code >= 400 and case.path not in PASSED_ON:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def test_every_route_is_described() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}

    assert described == {
        ("POST", "/v1/completions"),
        ("POST", "/v1/fim/completions"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/infill"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{model}"),
        ("GET", "/v1/health"),
        ("POST", "/v1/health"),
        ("GET", "/v1beta/server_setting"),
        ("POST", "/v1/events"),
    }


@pytest.mark.parametrize("model", MODELS)
def test_the_examples_fit_their_schemas(model: type[BaseModel]) -> None:
    examples = DOCUMENT["components"]["schemas"][model.__name__]["examples"]

    assert examples
    for example in examples:
        model.model_validate(example)
