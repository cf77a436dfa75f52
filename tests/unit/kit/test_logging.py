"""Logs say what failed and where, never what somebody typed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from shared.kit.errors import TemporaryError
from shared.kit.logging import configure_logging

PLANTED = "def planted_secret(): pass"


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    handlers, level = logging.getLogger().handlers, logging.getLogger().level
    yield
    logging.getLogger().handlers, logging.getLogger().level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def logged(error: Exception, through: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    configure_logging("test")
    try:
        raise error
    except Exception as caught:
        if through == "structlog":
            structlog.get_logger().error("failed", exc_info=caught)
        else:
            logging.getLogger("uvicorn.error").exception("failed")
    return dict(json.loads(capsys.readouterr().err))


@pytest.mark.parametrize("through", ["structlog", "logging"])
def test_an_exception_s_message_is_left_out(through: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = logged(ValueError(PLANTED), through, capsys)
    assert (line["event"], line["exception"], line["service"]) == ("failed", "ValueError", "test")
    assert "test_logging.py" in line["frames"]
    assert PLANTED not in json.dumps(line)


def test_the_message_of_an_error_of_ours_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(TemporaryError("redis is away"), "structlog", capsys)["reason"] == "redis is away"


def test_a_line_without_an_exception_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("test", "INFO")
    structlog.get_logger().info("started", port=8081)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["port"]) == ("started", 8081)
    assert "exception" not in line
