"""Structured logs. An event is a constant string, facts are keywords; user code never goes into either.

An exception is logged by its type and frames. Its message may quote what somebody typed (a database driver's quotes
rows), so only the messages of our own errors, which never do, are kept.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Literal

import structlog

from shared.kit.errors import TabwiseError


def configure_logging(service: str, level: str = "INFO", log_format: Literal["json", "console"] = "json") -> None:
    """Send structlog's and the standard library's records to standard error in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                without_messages,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    structlog.contextvars.bind_contextvars(service=service)


def without_messages(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """structlog processor: `exc_info` becomes `exception` (its type) and `frames` (file, line, our code)."""
    given = event.pop("exc_info", None)
    error = given if isinstance(given, BaseException) else (given[1] if isinstance(given, tuple) else sys.exception())
    if not given or error is None:
        return event
    event["exception"] = type(error).__name__
    if isinstance(error, TabwiseError):
        event["reason"] = str(error)
    event["frames"] = "".join(traceback.format_tb(error.__traceback__)[-8:])
    return event
