"""The test client's steps: what an editor does once, each with a plain result and a hint where it fails.

In: a ``Target``. Out: one ``Step`` after the other, as they are done. A step whose ground is missing is ``skipped``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import orjson

from clients.developer.prompts import fim_prompt, shown_text
from clients.developer.wire import (
    DEFAULT_SETTINGS,
    PATHS,
    FeedbackFormat,
    Outcome,
    completion_post,
    feedback_post,
    now_iso,
)

Status = Literal["ok", "failed", "skipped"]

CURSORS = (
    ("def add(a: int, b: int) -> int:\n    return ", "\n"),
    ("class Order:\n    def __init__(self, id: str, total: int) -> None:\n        self.id = ", "\n"),
    ("for number in range(10):\n    print(", "\n"),
)
"""Places that nearly every code model has something to say at; the next is tried when a completion is empty."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is checked. The URLs have no path."""

    gateway_url: str
    ingest_url: str
    key: str
    project: str = "default"
    form: FeedbackFormat = "continue"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that worked, or did not. ``hint`` says what to do about it."""

    name: str
    status: Status
    detail: str = ""
    hint: str = ""


class StepFailed(Exception):
    """A step did not work: what was seen, and what to do."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


class Check:
    """One run of all steps against one target."""

    def __init__(self, target: Target, http: httpx.Client) -> None:
        self._to = target
        self._http = http
        self._outcome: Outcome | None = None
        """What an editor would have shown, once a completion brought something."""

    def steps(self) -> Iterator[Step]:
        """Do the steps in order: gateway, key, completion, ingest, feedback, the same feedback again."""
        plan = {
            "gateway reachable": (None, self._gateway_reachable),
            "gateway ready": ("gateway reachable", self._gateway_ready),
            "key accepted": ("gateway reachable", self._key_accepted),
            "completion streamed": ("key accepted", self._completion_streamed),
            "ingest reachable": (None, self._ingest_reachable),
            "ingest ready": ("ingest reachable", self._ingest_ready),
            "feedback stored": ("ingest reachable", self._feedback_stored),
            "same event again": ("feedback stored", self._same_event_again),
        }
        done: dict[str | None, bool] = {None: True}
        for name, (ground, work) in plan.items():
            if not done[ground]:
                step = Step(name, "skipped", f"because “{ground}” did not work")
            else:
                step = self._do(name, work)
            done[name] = step.status == "ok"
            yield step

    def _do(self, name: str, work: Callable[[], str]) -> Step:
        try:
            return Step(name, "ok", work())
        except _Skipped as skipped:
            return Step(name, "skipped", str(skipped))
        except StepFailed as failure:
            return Step(name, "failed", failure.detail, failure.hint)

    # --- gateway ---

    def _gateway_reachable(self) -> str:
        return self._reach(self._to.gateway_url, "gateway", "TABWISE_GATEWAY_PORT")

    def _gateway_ready(self) -> str:
        return self._ready(self._to.gateway_url, "the engine is still loading its model (20 to 30 s), or it is away")

    def _key_accepted(self) -> str:
        url = f"{self._to.gateway_url}/v1/models"
        answer = self._send("GET", url, {"Authorization": f"Bearer {self._to.key}"})
        if answer.status_code != 200:
            raise _refused(answer, self._to.gateway_url)
        models = ", ".join(card["id"] for card in _object(answer).get("data", []))
        return f"models: {models or 'none'}"

    def _completion_streamed(self) -> str:
        details = []
        for prefix, suffix in CURSORS:
            text, detail = self._complete(prefix, suffix)
            details.append(detail)
            if text:
                return f"{text!r}, {detail}"
        return f"the model stayed silent at all {len(CURSORS)} places ({'; '.join(details)})"

    def _complete(self, prefix: str, suffix: str) -> tuple[str, str]:
        """The text that an editor would show, and how it came."""
        prompt = fim_prompt(prefix, suffix)
        started = time.monotonic()
        raw, chunks, first_s = self._stream(prompt)
        took_s = time.monotonic() - started
        shown = shown_text(raw, prefix, suffix)
        if shown:
            self._outcome = Outcome(
                completion_id=str(uuid.uuid4()),
                prompt=prompt,
                prefix=prefix,
                suffix=suffix,
                completion=shown,
                filepath="file:///check/check.py",
                time_ms=round(took_s * 1000),
                timestamp=now_iso(),
                unique_id="tabwise-check",
            )
        first = "no text" if first_s is None else f"first text after {first_s * 1000:.0f} ms"
        return shown, f"{first}, {chunks} chunks, {took_s * 1000:.0f} ms in all"

    def _stream(self, prompt: str) -> tuple[str, int, float | None]:
        post = completion_post(self._to.gateway_url, self._to.key, prompt)
        started = time.monotonic()
        raw, chunks, first_s, ended = "", 0, None, False
        try:
            with self._http.stream("POST", post.url, headers=post.headers, json=post.body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise _refused(answer, self._to.gateway_url)
                for line in answer.iter_lines():
                    data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                    ended = ended or data == "[DONE]"
                    if data and data != "[DONE]" and (text := _text(data)):
                        first_s = time.monotonic() - started if first_s is None else first_s
                        raw, chunks = raw + text, chunks + 1
        except httpx.HTTPError as error:
            raise StepFailed(
                f"the stream broke after {chunks} chunks: {type(error).__name__}: {error}",
                "look at the gateway's log; a proxy in between must not cut or time out streams",
            ) from error
        if not ended:
            raise StepFailed("the stream ended without [DONE]", "look at the gateway's and the engine's logs")
        return raw, chunks, first_s

    # --- ingest ---

    def _ingest_reachable(self) -> str:
        return self._reach(self._to.ingest_url, "ingest", "TABWISE_INGEST_PORT")

    def _ingest_ready(self) -> str:
        hint = "PostgreSQL or Redis is away: see TABWISE_DATABASE_URL and TABWISE_REDIS_URL"
        return self._ready(self._to.ingest_url, hint)

    def _feedback_stored(self) -> str:
        status = self._feed()
        return f"a rejection of the completion above, {self._to.form} format, {status} by {PATHS[self._to.form]}"

    def _same_event_again(self) -> str:
        return f"{self._feed()}; as the same event it is meant to count once"

    def _feed(self) -> str:
        if self._outcome is None:
            raise _Skipped("no completion was shown, and editors send no event then")
        to = self._to
        post = feedback_post(to.form, to.ingest_url, to.key, to.project, self._outcome, False, DEFAULT_SETTINGS)
        answer = self._send("POST", post.url, post.headers, post.body)
        if not answer.is_success:
            raise _refused(answer, to.ingest_url)
        return f"answered {answer.status_code}"

    # --- both ---

    def _reach(self, url: str, service: str, setting: str) -> str:
        answer = self._send("GET", f"{url}/health", {})
        if answer.status_code != 200:
            raise StepFailed(
                f"{url}/health answered {answer.status_code}",
                f"something else may listen there: is it the {service}'s port ({setting})?",
            )
        return url

    def _ready(self, url: str, hint: str) -> str:
        answer = self._send("GET", f"{url}/ready", {})
        if answer.status_code != 200:
            reason = _object(answer).get("reason", answer.text[:200])
            raise StepFailed(f"answered {answer.status_code}: {reason}", hint)
        return "ready"

    def _send(
        self, method: str, url: str, headers: dict[str, str], body: dict[str, Any] | None = None
    ) -> httpx.Response:
        try:
            return self._http.request(method, url, headers=headers, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise StepFailed(
                f"{url}: {type(error).__name__}: {error}",
                "is it running (`make up`), are host and port right, and does a firewall or proxy stand in between?",
            ) from error


class _Skipped(Exception):
    """There is nothing to do, and nothing is wrong."""


def _refused(answer: httpx.Response, url: str) -> StepFailed:
    error = _object(answer).get("error", {})
    said = error.get("message", answer.text[:200]) if isinstance(error, dict) else str(error)
    hints = {
        401: "use one of the keys in TABWISE_API_KEYS of the server (--key)",
        403: "this key belongs to another project: name that with --project",
        404: f"{url} does not have this route: is it the right port, and no /v1 at the end of --gateway?",
        413: "the server's body limit is too small for this request",
        422: "client and server disagree about the format: please report this",
        503: "a part behind it is away: see the step “ready” and the server's log",
    }
    return StepFailed(f"answered {answer.status_code}: {said}", hints.get(answer.status_code, "see the server's log"))


def _object(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in an answer; an empty one where there is none (an answer of something else)."""
    try:
        value = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(data: str) -> str:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise StepFailed(f"a chunk is not JSON: {data[:80]!r}", "see the gateway's log") from error
    if "error" in chunk:
        raise StepFailed(f"an error in mid-stream: {chunk['error']}", "see the gateway's and the engine's logs")
    choices = chunk.get("choices") or [{}]
    return str(choices[0].get("text") or "")
