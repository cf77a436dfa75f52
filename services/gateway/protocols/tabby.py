"""Tabby's completions, told apart from OpenAI's on the same path by `segments`. Pure.

The prompt is OpenAI's suffix form; declarations and snippets that the plugin found become other files of it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from services.gateway.call import Call, Origin, make_call
from services.gateway.capture import Visible
from services.gateway.fitting import FimSource
from services.gateway.protocols.common import Begun, Finished, Finite, Seed, dumps, read
from services.gateway.sampling import make_sampling
from services.gateway.settings import GatewaySettings
from shared.fim import Snippet, stop_strings
from shared.web.errors import ApiError

PROTOCOL = "tabby"
DEFAULT_TEMPERATURE = 0.1
"""Tabby's."""
VERSION = "tabwise"
"""Without a number: the plugins would take it for Tabby's own, and ask releases before 0.9 for fewer things."""


class Code(BaseModel):
    """A piece of another file."""

    filepath: str | None = None
    body: str


class Segments(BaseModel):
    """The edited file around the cursor, and what the plugin found elsewhere."""

    prefix: str
    suffix: str | None = None
    filepath: str | None = None
    git_url: str | None = None
    declarations: list[Code] | None = None
    relevant_snippets_from_changed_files: list[Code] | None = None
    relevant_snippets_from_recently_opened_files: list[Code] | None = None
    clipboard: str | None = Field(default=None, description="Taken, and not used.")


class TabbyRequest(BaseModel):
    """Tabby's completion."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "language": "python",
                    "segments": {"prefix": "def add(a, b):\n    return ", "suffix": "\n", "filepath": "src/add.py"},
                }
            ]
        },
    )

    segments: Segments
    language: str | None = Field(default=None, max_length=100)
    user: str | None = Field(default=None, description="Taken, and not kept: the key says who asks.")
    temperature: Finite | None = Field(default=None, ge=0, le=100)
    seed: Seed | None = None


class TabbyEvent(BaseModel):
    """What became of a choice: shown, accepted or dismissed. Ingest reads it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"type": "select", "completion_id": "cmpl-1", "choice_index": 0}]},
    )

    type: str = Field(description="`view`, `select` or `dismiss`.")
    completion_id: str
    choice_index: int = 0
    view_id: str | None = None
    elapsed: int | None = None
    select_kind: str | None = None


def is_tabby(body: bytes) -> bool:
    """Whether a body sent to `/v1/completions` is Tabby's. Bodies of OpenAI's clients are hardly looked at."""
    if b'"segments"' not in body:
        return False
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and value.get("segments") is not None and "prompt" not in value


def begin(body: bytes, origin: Origin, settings: GatewaySettings) -> Begun:
    """Raises `ApiError` (422) for a malformed request."""
    call = to_call(read(TabbyRequest, body), origin, settings)
    return Begun(call, TabbyWriter(call))


def to_call(request: TabbyRequest, origin: Origin, settings: GatewaySettings) -> Call:
    """What is asked of the engine for this request."""
    segments = request.segments
    sampling = make_sampling(
        settings,
        origin.project_id,
        temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        seed=request.seed,
        stop=stop_strings(settings.fim_template),
    )
    source = FimSource(
        settings.fim_template,
        segments.prefix,
        segments.suffix or "",
        path=segments.filepath,
        repo=_repo(segments.git_url),
        language=request.language,
        snippets=_snippets(segments),
    )
    return make_call(origin, settings, PROTOCOL, settings.served_model_name, sampling, source)


def _snippets(segments: Segments) -> tuple[Snippet, ...]:
    """In Tabby's own order: what is named at the cursor first, it is what helps most."""
    lists = (
        segments.declarations,
        segments.relevant_snippets_from_changed_files,
        segments.relevant_snippets_from_recently_opened_files,
    )
    return tuple(Snippet(code.filepath, code.body) for found in lists for code in found or () if code.body.strip())


def _repo(git_url: str | None) -> str | None:
    if not git_url:
        return None
    return git_url.rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2] or None


class TabbyWriter:
    """Answers to one call. Never streamed."""

    def __init__(self, call: Call) -> None:
        self._id = call.request_id

    def chunk(self, visible: Visible) -> bytes | None:
        """Never asked for."""
        raise NotImplementedError

    def tail(self, finished: Finished) -> Iterable[bytes]:
        """Never asked for."""
        raise NotImplementedError

    def answer(self, finished: Finished, seen: Sequence[Visible]) -> bytes:
        """The plugin's events name this id and the choice's index."""
        choices = [{"index": choice.index, "text": choice.text} for choice in finished.capture.choices]
        return dumps({"id": self._id, "choices": choices})


def health(model: str) -> dict[str, Any]:
    """The plugins only look whether `version` is there; where the model runs, the gateway does not know."""
    version = {"build_date": "", "build_timestamp": "", "git_sha": "", "git_describe": VERSION}
    return {
        "model": model,
        "device": "remote",
        "arch": platform.machine(),
        "cpu_info": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count() or 1,
        "cuda_devices": [],
        "version": version,
    }


SERVER_SETTING = {"disable_client_side_telemetry": True}
"""The plugins' own usage statistics, which go to Tabby's makers, stay off. Events about completions still come."""


def events_away() -> ApiError:
    """503: the event is not stored anywhere."""
    return ApiError(
        503,
        "feedback_unavailable",
        "feedback cannot be taken right now; try again shortly",
        type_="server_error",
        headers={"Retry-After": "1"},
    )
