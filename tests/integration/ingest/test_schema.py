"""The OpenAPI document describes every route with an example, and nothing that fits it (or nearly does) is a 5xx."""

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
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its stubs are not worth a package
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from services.ingest.app import create_app
from services.ingest.settings import IngestSettings
from tests.factories import KEY_SECRET

EXAMPLES = 30
PROBES = ("/health", "/ready", "/metrics")
DOCUMENT: dict[str, Any] = create_app(IngestSettings(api_keys=KEY_SECRET)).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def url(postgres_url: str, redis_url: str) -> Iterator[str]:
    """An ingest on a real port and a real ledger, without its loops."""
    loops = {name: False for name in IngestSettings.model_fields if name.startswith("run_")}
    values: dict[str, Any] = {"database_url": postgres_url, "redis_url": redis_url, "api_keys": KEY_SECRET} | loops
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(IngestSettings(**values)), log_config=None, access_log=False))
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
    case.headers["Authorization"] = f"Bearer {KEY_SECRET}"
    case.headers.pop("api-key", None)
    answer = case.call(base_url=url, timeout=10)

    case.validate_response(answer, checks=[not_a_server_error, status_code_conformance, content_type_conformance])
    if answer.status_code >= 400:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


def test_every_route_is_described() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}

    assert {route for route in described if route[1] not in PROBES} == {
        ("POST", "/api/training/submit"),
        ("POST", "/v1/events/continue"),
        ("POST", "/v1/events/tabby"),
        ("POST", "/v1/feedback"),
        ("GET", "/v1/stats"),
        ("GET", "/v1/acceptance"),
        ("GET", "/v1/joins"),
    }


@pytest.mark.parametrize("path", [path for path, methods in DOCUMENT["paths"].items() if "post" in methods])
def test_every_body_has_an_example_that_fits_its_schema(path: str) -> None:
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    validator = Draft202012Validator(content["schema"])

    assert content["examples"]
    for example in content["examples"].values():
        validator.validate(example["value"])
