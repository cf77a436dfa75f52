"""What Continue puts on the wire, byte for byte: requests, headers and the two formats of feedback.

In: prompts and outcomes. Out: headers and JSON bodies. Pure; the oracle is the source of Continue 2.0.0 and the zod
schema ``autocomplete`` 0.2.0 of its npm package ``@continuedev/config-yaml`` 1.42.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from clients.developer.prompts import STOP

FeedbackFormat = Literal["continue", "rlinf"]
"""``continue``: the dev-data destination of stock Continue. ``rlinf``: RLinf's modified Continue."""

MODEL = "qwen2.5-coder-team"
MAX_TOKENS = 4096
TEMPERATURE = 0.01
USER_AGENT = "Visual Studio Code/1.104.0 (Continue/2.0.0)"
PROFILE = "local"
GIT_REPO = "https://git.example.com/team/house.git"
PATHS: dict[FeedbackFormat, str] = {"continue": "/v1/events/continue", "rlinf": "/api/training/submit"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One completion that the editor is about to show, as Continue remembers it until it is logged."""

    completion_id: str
    """The editor's own UUID; the server has never seen it before the event."""
    prompt: str
    prefix: str
    suffix: str
    completion: str
    filepath: str
    time_ms: int
    """From the last keystroke to the completed text, the debounce included."""
    timestamp: str
    unique_id: str


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """The team's ``autocompleteOptions``, which the events repeat."""

    debounce_ms: int = 350
    max_prompt_tokens: int = 4096
    """Large enough that Continue prunes nothing of the team's files (0.3 of it for the prefix, 0.2 for the suffix)."""
    model_timeout_ms: int = 400
    """Continue cuts a completion that still streams after 2.5 times this. Its default is 150, for GPUs."""


DEFAULT_SETTINGS = EditorSettings()


@dataclass(frozen=True, slots=True)
class Post:
    """A request to make."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]


def completion_post(gateway_url: str, key: str, prompt: str) -> Post:
    """Continue's completion request. ``gateway_url`` has no ``/v1``."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "api-key": key}
    body = {
        "model": MODEL,
        "max_tokens": MAX_TOKENS,
        "temperature": TEMPERATURE,
        "stream": True,
        "stop": list(STOP),
        "prompt": prompt,
    }
    return Post(f"{gateway_url.rstrip('/')}/v1/completions", headers, body)


def feedback_post(
    form: FeedbackFormat,
    ingest_url: str,
    key: str,
    project: str,
    outcome: Outcome,
    accepted: bool,
    editor: EditorSettings,
) -> Post:
    """The event about one display, in either format. ``project`` is only sent in RLinf's."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    if form == "rlinf":
        headers["X-Project-ID"] = project
        body = rlinf_event(outcome, accepted)
    else:
        body = continue_event(outcome, accepted, editor)
    return Post(f"{ingest_url.rstrip('/')}{PATHS[form]}", headers, body)


def continue_event(outcome: Outcome, accepted: bool, editor: EditorSettings) -> dict[str, Any]:
    """The envelope and the data of stock Continue's event ``autocomplete``, schema 0.2.0, level ``all``."""
    base = {
        "eventName": "autocomplete",
        "schema": "0.2.0",
        "timestamp": outcome.timestamp,
        "userId": "",
        "userAgent": USER_AGENT,
        "selectedProfileId": PROFILE,
    }
    data = {**base, **_options(editor), **_completion(outcome, accepted), "gitRepo": GIT_REPO}
    return {"name": "autocomplete", "data": data, "schema": "0.2.0", "level": "all", "profileId": PROFILE}


def rlinf_event(outcome: Outcome, accepted: bool) -> dict[str, Any]:
    """The flat event of RLinf's modified Continue."""
    lines = outcome.completion.count("\n") + 1
    return {**_completion(outcome, accepted), "timestamp": outcome.timestamp, "numLines": lines}


def now_iso() -> str:
    """The current time as JavaScript's ``Date.toISOString`` writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _completion(outcome: Outcome, accepted: bool) -> dict[str, Any]:
    return {
        "completionId": outcome.completion_id,
        "filepath": outcome.filepath,
        "prefix": outcome.prefix,
        "suffix": outcome.suffix,
        "prompt": outcome.prompt,
        "completion": outcome.completion,
        "modelProvider": "openai",
        "modelName": MODEL,
        "accepted": accepted,
        "time": outcome.time_ms,
        "uniqueId": outcome.unique_id,
        "cacheHit": False,
    }


def _options(editor: EditorSettings) -> dict[str, Any]:
    """Single lines (``multilineCompletions: never``, which is set in the editor) and no cache."""
    return {
        "disable": False,
        "maxPromptTokens": editor.max_prompt_tokens,
        "debounceDelay": editor.debounce_ms,
        "maxSuffixPercentage": 0.2,
        "prefixPercentage": 0.3,
        "transform": True,
        "multilineCompletions": "never",
        "slidingWindowPrefixPercentage": 0.75,
        "slidingWindowSize": 500,
        "useCache": False,
        "onlyMyCode": True,
        "useRecentlyEdited": True,
        "useImports": True,
    }
