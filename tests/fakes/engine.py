"""A fake of our engine: what vLLM 0.32 with its admin routes and our version stamp says, without a model.

It speaks `/v1/completions` (stream and not, `n`, `stop`, `logprobs`, `return_token_ids`, `prompt_logprobs`, text and
token-id prompts), `/v1/models`, `/health`, `/pause?mode=`, `/resume`, `/is_paused`, `/collective_rpc`
(`load_checkpoint`, `reload_weights`), `/update_weight_version`, `/weight_info` and `/reset_prefix_cache`.
`tests/contract/` holds it and the real vLLM to the same suite.

    with FakeEngine(reply="return total\\n") as engine:   # serves on a free port, in a thread of its own
        requests.post(engine.url + "/v1/completions", json={"model": "tabwise", "prompt": "def f"})

The model (`toy_model`) is deterministic in weights, context and seed; `reply` scripts what it "samples" (a text, one
text per choice, or a function of the prompt), `None` lets it draw from its distribution. `engine.weights` is the digest
of the loaded folder; `toy_model.prompt_logprobs(toy_model.weights_digest(folder), ids)` is what a probe must hold.

Faults are attributes that can be set at any time: see `Faults`. `script` holds faults for single completions, in the
order in which they come; once it is empty `faults` counts again. What happened can be read from `requests` (bodies of
completions), `calls` (every `METHOD path`), `tokens_sampled`, `running` and `aborted` (clients that hung up).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import numpy as np
from aiohttp import web

from tests.fakes import toy_model

MAX_STOP_STRINGS = 64
"""What `services.engine` sets; vLLM's own limit is 4."""
Reply = str | Sequence[str] | Callable[[str], str] | None


@dataclass
class Faults:
    """What goes wrong. Counts are in tokens of the first choice; None: never."""

    token_delay_s: float = 0.0
    first_token_delay_s: float = 0.0
    status: int | None = None
    """Answer completions with this HTTP status."""
    stall_before_headers: bool = False
    """Take the request and say nothing, until the client hangs up."""
    reset_before_headers: bool = False
    """Close the connection without any answer."""
    reset_if_reused: bool = False
    """Do that to requests on a connection that has served one before, as where it is closed for being idle just when
    the next request arrives."""
    garbage_before_headers: bool = False
    """Answer with something that is not HTTP."""
    stall_after: int | None = None
    """Send nothing more after so many tokens (0: after the headers), until the client hangs up."""
    reset_after: int | None = None
    """Abort the TCP connection after so many tokens (0: after the headers)."""
    garbage_after: int | None = None
    """Send a `data:` line that is not JSON after so many tokens, and end."""
    error_after: int | None = None
    """Send vLLM's error event after so many tokens, then `[DONE]`."""
    half_chunk_after: int | None = None
    """Send half of the next event after so many tokens and close, in the middle of an HTTP chunk."""
    end_after: int | None = None
    """End the body cleanly after so many tokens, with neither finish reason nor `[DONE]`."""
    merge: int = 1
    """Tokens per chunk, as where a client reads slowly."""
    stamp: bool = True
    """Whether chunks carry `weight_version`."""
    logprob: Any = "true"
    """Replaces every token logprob: None (null), a number, or float("nan") (written as a bare NaN)."""
    reload_status: int | None = None
    """Answer loads with this status, the weights untouched."""
    reload_refused: str | None = None
    """Answer 500 to loads of folders with this in their path, the weights untouched."""
    reload_delay_s: float = 0.0
    """How long a load takes."""
    reload_changes_nothing: bool = False
    """Say that weights were loaded, and keep the old ones (what vLLM 0.32 does with a tied output layer on a CPU)."""
    unhealthy: bool = False


class FakeEngine:
    """The engine on 127.0.0.1:`port` for the length of a `with` block (or between `start()` and `stop()`)."""

    def __init__(
        self,
        *,
        reply: Reply = None,
        model: str = "tabwise",
        max_model_len: int = 2048,
        port: int = 0,
    ) -> None:
        self.reply = reply
        self.model = model
        self.max_model_len = max_model_len
        self.port = port
        self.faults = Faults()
        self.script: deque[Faults] = deque()
        self.weights = toy_model.BASE_WEIGHTS
        self.weights_path: str | None = None
        self.weight_version = "default"
        self.requests: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.tokens_sampled = 0
        self.running = 0
        self.aborted = 0
        self.prefix_cache_resets = 0
        self._pause_mode: str | None = None
        self._draws = 0
        self._used: WeakSet[Any] = WeakSet()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._resumed: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """Base URL, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def paused(self) -> bool:
        """Whether generation is held."""
        return self._pause_mode is not None

    # --- life ---

    def start(self) -> Self:
        """Serve; returns when the port is open."""
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        if not started.wait(10):
            raise RuntimeError("the fake engine did not start")
        return self

    def stop(self) -> None:
        """Close every connection and the port. A later `start()` serves on the same port, with base weights."""
        if self._thread is None or self._loop is None or self._stopped is None:
            return
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._thread = None

    def restart(self) -> None:
        """What a crash and a restart do: the base model again, version `default`, not paused."""
        self.stop()
        self.weights, self.weights_path, self.weight_version = toy_model.BASE_WEIGHTS, None, "default"
        self._pause_mode = None
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stopped, self._resumed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._resumed.set()
        runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = runner.addresses[0][1]
        started.set()
        await self._stopped.wait()
        await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._noted])
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/pause", self._pause)
        app.router.add_post("/resume", self._resume)
        app.router.add_get("/is_paused", self._is_paused)
        app.router.add_post("/collective_rpc", self._collective_rpc)
        app.router.add_post("/update_weight_version", self._update_weight_version)
        app.router.add_get("/weight_info", self._weight_info)
        app.router.add_post("/reset_prefix_cache", self._reset_prefix_cache)
        return app

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path}")
        answer: web.StreamResponse = await handler(request)
        return answer

    # --- admin routes ---

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.faults.unhealthy else 200)

    async def _models(self, _: web.Request) -> web.Response:
        card: dict[str, Any] = {"id": self.model, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
        more: dict[str, Any] = {
            "root": self.model,
            "parent": None,
            "max_model_len": self.max_model_len,
            "permission": [],
        }
        return web.json_response({"object": "list", "data": [card | more]})

    async def _pause(self, request: web.Request) -> web.Response:
        mode = request.query.get("mode", "abort")
        if mode not in ("abort", "wait", "keep"):
            return _error(400, f"mode: Input should be 'abort', 'wait' or 'keep', not {mode!r}", "Bad Request")
        assert self._resumed is not None
        self._pause_mode = mode
        self._resumed.clear()
        while mode == "wait" and self.running:
            await asyncio.sleep(0.005)
        return web.json_response({"status": "paused"})

    async def _resume(self, _: web.Request) -> web.Response:
        assert self._resumed is not None
        self._pause_mode = None
        self._resumed.set()
        return web.json_response({"status": "resumed"})

    async def _is_paused(self, _: web.Request) -> web.Response:
        return web.json_response({"is_paused": self.paused})

    async def _collective_rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("method") is None:
            return web.json_response({"detail": "Missing 'method' in request body"}, status=400)
        if body["method"] not in ("load_checkpoint", "reload_weights") or self.faults.reload_status is not None:
            return _error(self.faults.reload_status or 500, "Internal Server Error", "InternalServerError")
        path = body.get("kwargs", {}).get("weights_path")
        await asyncio.sleep(self.faults.reload_delay_s)
        if self.faults.reload_refused is not None and self.faults.reload_refused in str(path):
            return _error(500, f"Call to collective_rpc method failed: {path}: no", "InternalServerError")
        if self.faults.reload_changes_nothing:
            return web.json_response({"results": [None]})
        try:
            self.weights = toy_model.BASE_WEIGHTS if path is None else toy_model.weights_digest(Path(path))
        except OSError as error:
            return _error(500, str(error), "InternalServerError")
        self.weights_path = path
        return web.json_response({"results": [None]})

    async def _update_weight_version(self, request: web.Request) -> web.Response:
        self.weight_version = str((await request.json())["new_version"])
        return web.json_response({"success": True, "new_version": self.weight_version})

    async def _weight_info(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.weight_version})

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        self.prefix_cache_resets += 1
        return web.json_response({"success": True})

    # --- completions ---

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        faults = self.script.popleft() if self.script else self.faults
        failure = await self._unanswered(request, faults)
        if failure is not None:
            return failure
        prompt = body.get("prompt")
        tokens = toy_model.encode(prompt) if isinstance(prompt, str) else list(prompt or [])
        refusal = self._refusal(body, tokens)
        if refusal is not None:
            return refusal
        answer = _Answer(body, tokens, self._choices(body, tokens), faults)
        self.running += 1
        try:
            return await (self._stream(request, answer) if body.get("stream") else self._whole(answer))
        except (asyncio.CancelledError, ConnectionResetError):
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    async def _unanswered(self, request: web.Request, faults: Faults) -> web.Response | None:
        """Faults that come before any answer."""
        used = request.transport in self._used
        self._used.add(request.transport)
        if faults.stall_before_headers:
            await self._hold()
        if faults.garbage_before_headers and request.transport is not None:
            request.transport.write(b"\x00\xffthis is not HTTP\r\n\r\n")
            request.transport.close()
            return web.Response()
        if faults.reset_before_headers or (faults.reset_if_reused and used):
            _reset(request)
            return web.Response()
        if faults.status is not None:
            return _error(faults.status, "the engine is ill", "InternalServerError")
        return None

    async def _hold(self) -> None:
        """Until the client hangs up."""
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
            self.aborted += 1

    def _refusal(self, body: dict[str, Any], tokens: list[int]) -> web.Response | None:
        if body.get("model") not in (None, self.model):
            return _error(404, f"The model `{body['model']}` does not exist.", "NotFoundError", "model")
        if not tokens:
            return _error(400, "Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        if len(tokens) > self.max_model_len:
            message = (
                f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt contains "
                f"at least {self.max_model_len + 1} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt."
            )
            return _error(400, message, param="input_tokens")
        if body.get("stream_options") and not body.get("stream"):
            return _error(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
        if body.get("stream") and (body.get("prompt_logprobs") or 0) != 0:
            return _error(400, "`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
        if isinstance(body.get("stop"), list) and len(body["stop"]) > MAX_STOP_STRINGS:
            return _error(400, f"List should have at most {MAX_STOP_STRINGS} items after validation", param="body.stop")
        if (body.get("max_tokens") or 16) < 1:
            return _error(400, "max_tokens must be at least 1, got 0.", param="max_tokens")
        return None

    def _choices(self, body: dict[str, Any], tokens: list[int]) -> list[toy_model.Choice]:
        stop = body.get("stop") or []
        max_tokens = body["max_tokens"] if body.get("max_tokens") is not None else 16
        temperature = body["temperature"] if body.get("temperature") is not None else 1.0
        self._draws += 1
        seed = body["seed"] if body.get("seed") is not None else self._draws
        return [
            toy_model.Choice(
                index=index,
                prompt=tokens,
                temperature=temperature,
                max_tokens=max(1, min(max_tokens, self.max_model_len - len(tokens))),
                stop=[stop] if isinstance(stop, str) else list(stop),
                include_stop=bool(body.get("include_stop_str_in_output")),
                skip_special=bool(body.get("skip_special_tokens", True)),
                rng=np.random.default_rng((seed % 2**64, index)),
                script=self._script(body.get("prompt"), index),
                top_logprobs=body.get("logprobs") or 0,
            )
            for index in range(body.get("n") or 1)
        ]

    def _script(self, prompt: Any, index: int) -> list[int] | None:
        reply = self.reply
        if reply is None:
            return None
        if callable(reply):
            reply = reply(prompt)
        text = reply if isinstance(reply, str) else reply[index % len(reply)]
        return toy_model.encode(text)

    async def _sampled(self, answer: _Answer) -> AsyncIterator[tuple[toy_model.Choice, toy_model.Step | None]]:
        """Round-robin over the choices, one token each; a step of None: aborted by `/pause?mode=abort`."""
        faults = answer.faults
        await asyncio.sleep(faults.first_token_delay_s)
        while alive := [choice for choice in answer.choices if not choice.finished]:
            for choice in alive:
                if not await self._may_go_on(choice):
                    choice.finished = True
                    yield choice, None
                    continue
                self.tokens_sampled += 1
                yield choice, choice.step(self.weights)
            await asyncio.sleep(faults.token_delay_s)

    async def _may_go_on(self, choice: toy_model.Choice) -> bool:
        assert self._resumed is not None
        if self._pause_mode == "abort" and choice.tokens:
            return False
        if self._pause_mode != "wait" or not choice.tokens:
            await self._resumed.wait()
        return True

    async def _whole(self, answer: _Answer) -> web.Response:
        parts: dict[int, list[toy_model.Step]] = {choice.index: [] for choice in answer.choices}
        versions: dict[int, list[str]] = {choice.index: [] for choice in answer.choices}
        async for choice, step in self._sampled(answer):
            parts[choice.index] += [step] if step else []
            versions[choice.index] += [self.weight_version] if step else []
        choices = []
        for choice in answer.choices:
            steps = parts[choice.index]
            finish = steps[-1].finish_reason if steps else None
            choices.append(
                {
                    "index": choice.index,
                    "text": "".join(step.text for step in steps),
                    "logprobs": self._logprobs(answer, steps),
                    "finish_reason": finish or "abort",
                    "stop_reason": steps[-1].stop_reason if steps else None,
                    "token_ids": [step.token_id for step in steps] if answer.with_ids else None,
                    "prompt_logprobs": self._prompt_logprobs(answer),
                    "prompt_token_ids": answer.prompt if answer.with_ids else None,
                    "weight_versions": _spans(versions[choice.index]) if self.faults.stamp else None,
                }
            )
        sampled = sum(len(choice.tokens) for choice in answer.choices)
        whole = answer.head(self.model) | {"choices": choices, "usage": answer.usage(sampled)}
        return web.json_response(whole | self._stamp(versions[0][:1]))

    async def _stream(self, request: web.Request, answer: _Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        waiting: dict[int, list[tuple[toy_model.Step, str]]] = {choice.index: [] for choice in answer.choices}
        sent = 0
        if await self._fault(request, response, answer.faults, sent):
            return response
        async for choice, step in self._sampled(answer):
            steps = waiting[choice.index]
            steps += [(step, self.weight_version)] if step else []
            if len(steps) < answer.faults.merge and not choice.finished:
                continue
            await self._send(response, self._chunk(answer, choice, steps, aborted=step is None))
            sent += len(steps) * (choice.index == 0)
            waiting[choice.index] = []
            if await self._fault(request, response, answer.faults, sent):
                return response
        if (answer.body.get("stream_options") or {}).get("include_usage"):
            usage = answer.usage(sum(len(choice.tokens) for choice in answer.choices))
            await self._send(response, answer.head(self.model) | {"choices": [], "usage": usage} | self._stamp([]))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _chunk(
        self, answer: _Answer, choice: toy_model.Choice, steps: list[tuple[toy_model.Step, str]], *, aborted: bool
    ) -> dict[str, Any]:
        start = len(choice.tokens) - len(steps)
        last = steps[-1][0] if steps and not aborted else None
        entry = {
            "index": choice.index,
            "text": "".join(step.text for step, _ in steps),
            "logprobs": self._logprobs(answer, [step for step, _ in steps]),
            "finish_reason": last.finish_reason if last else "abort",
            "stop_reason": last.stop_reason if last else None,
            "prompt_token_ids": answer.prompt if answer.with_ids and start == 0 else None,
            "token_ids": [step.token_id for step, _ in steps] if answer.with_ids else None,
        }
        return self._stamp([version for _, version in steps], start) | answer.head(self.model) | {"choices": [entry]}

    async def _fault(self, request: web.Request, response: web.StreamResponse, faults: Faults, sent: int) -> bool:
        if faults.stall_after is not None and sent >= faults.stall_after:
            await asyncio.Event().wait()
        if faults.half_chunk_after is not None and sent >= faults.half_chunk_after and request.transport is not None:
            request.transport.write(b'40\r\ndata: {"id": "cmpl-1", "choi')
            request.transport.close()
            return True
        if faults.reset_after is not None and sent >= faults.reset_after:
            _reset(request)
            return True
        if faults.garbage_after is not None and sent >= faults.garbage_after:
            await response.write(b'data: {"choices": [\n\n')
            return True
        if faults.error_after is not None and sent >= faults.error_after:
            error = {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}
            await response.write(b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n")
            return True
        return faults.end_after is not None and sent >= faults.end_after

    async def _send(self, response: web.StreamResponse, chunk: dict[str, Any]) -> None:
        await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")

    def _stamp(self, versions: list[str], start: int = 0) -> dict[str, Any]:
        """The version of the first token; spans as well where there are several (`services/engine/stamp.py`)."""
        if not self.faults.stamp:
            return {}
        spans = _spans(versions, start)
        first = {"weight_version": versions[0] if versions else self.weight_version}
        return first | ({"weight_versions": spans} if len(spans) > 1 else {})

    def _logprobs(self, answer: _Answer, steps: list[toy_model.Step]) -> dict[str, Any] | None:
        if answer.body.get("logprobs") is None:
            return None
        values = [step.logprob if self.faults.logprob == "true" else self.faults.logprob for step in steps]
        return {
            "text_offset": [step.offset for step in steps],
            "token_logprobs": values,
            "tokens": [step.piece for step in steps],
            "top_logprobs": [step.top for step in steps],
        }

    def _prompt_logprobs(self, answer: _Answer) -> list[Any] | None:
        if answer.body.get("prompt_logprobs") is None:
            return None
        values = toy_model.prompt_logprobs(self.weights, answer.prompt)
        entries = zip(answer.prompt[1:], values, strict=True)
        return [None, *({str(t): {"logprob": v, "rank": 1, "decoded_token": ""}} for t, v in entries)]


@dataclass
class _Answer:
    """One completion request being answered."""

    body: dict[str, Any]
    prompt: list[int]
    choices: list[toy_model.Choice]
    faults: Faults

    def __post_init__(self) -> None:
        self.with_ids = bool(self.body.get("return_token_ids"))
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def head(self, model: str) -> dict[str, Any]:
        return {"id": self._id, "object": "text_completion", "created": self._created, "model": model}

    def usage(self, sampled: int) -> dict[str, int]:
        prompt = len(self.prompt)
        return {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}


def _error(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": param, "code": status}}, status=status
    )


def _spans(versions: Sequence[str], start: int = 0) -> list[tuple[str, int, int]]:
    """Runs of equal versions; the first token is number `start`."""
    spans: list[tuple[str, int, int]] = []
    for position, version in enumerate(versions, start):
        if spans and spans[-1][0] == version:
            spans[-1] = (version, spans[-1][1], position + 1)
        else:
            spans.append((version, position, position + 1))
    return spans


def _reset(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
