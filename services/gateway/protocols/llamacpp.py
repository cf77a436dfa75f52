"""llama.cpp's `/infill`, as llama.vim and llama.vscode send it. Pure.

`prompt`, the line up to the cursor, is the end of the prefix. llama.cpp's `infill` sampler drops unlikely tokens, which
a learner could not recompute: a low temperature stands for it, where the client names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from services.gateway.call import Call, Enough, Origin, make_call
from services.gateway.capture import ChoiceCapture, Visible
from services.gateway.fitting import FimSource
from services.gateway.protocols.common import (
    MAX_CHOICES,
    Begun,
    Finished,
    Finite,
    Stop,
    as_list,
    dumps,
    read,
    with_family_stops,
)
from services.gateway.sampling import make_sampling
from services.gateway.settings import GatewaySettings
from shared.fim import Snippet

PROTOCOL = "llamacpp"
DEFAULT_TEMPERATURE = 0.2
_RANDOM_SEED = 2**32 - 1


class Extra(BaseModel):
    """A piece of another file."""

    filename: str | None = None
    text: str


class InfillRequest(BaseModel):
    """llama.cpp's infill."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "input_prefix": "def add(a, b):\n",
                    "prompt": "    return ",
                    "input_suffix": "\n",
                    "input_extra": [{"filename": "util.py", "text": "def sub(a, b): ...\n"}],
                    "n_predict": 32,
                    "top_k": 40,
                    "top_p": 0.99,
                    "samplers": ["top_k", "top_p", "infill"],
                    "stream": False,
                }
            ]
        },
    )

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] | None = None
    prompt: str | None = Field(default=None, description="The line up to the cursor.")
    n_predict: int | None = Field(default=None, ge=-2, le=2**31 - 1, description="0: a warm-up. Negative: no limit.")
    n_cmpl: int | None = Field(default=None, ge=1, le=MAX_CHOICES, description="More than 1: the answer is an array.")
    n_indent: int | None = Field(default=None, ge=0, description="End at a line with less indentation.")
    t_max_predict_ms: int | None = Field(default=None, description="End after this time, once there is a whole line.")
    samplers: list[str] | str | None = Field(default=None, description="`top_k` and `top_p` count only if listed.")
    temperature: Finite | None = Field(default=None, ge=0, le=100)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    top_p: Finite | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=-1, le=2**63 - 1)
    stop: Stop = None
    stream: bool | None = None
    response_fields: list[str] | None = Field(default=None, description="Only these, such as `timings/prompt_n`.")
    model: str | None = Field(default=None, max_length=200)


def begin(body: bytes, origin: Origin, settings: GatewaySettings) -> Begun | bytes:
    """A warm-up is answered at once: vLLM finds common prefixes by itself. Raises `ApiError` (422)."""
    request = read(InfillRequest, body)
    if request.n_predict == 0:
        return warm_up(request, settings)
    call = to_call(request, origin, settings)
    return Begun(call, InfillWriter(request, call, settings))


def to_call(request: InfillRequest, origin: Origin, settings: GatewaySettings) -> Call:
    """What is asked of the engine for this request."""
    sampling = make_sampling(
        settings,
        origin.project_id,
        temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        top_p=request.top_p if _listed(request.samplers, "top_p") else None,
        top_k=request.top_k if _listed(request.samplers, "top_k") else None,
        max_tokens=request.n_predict if request.n_predict and request.n_predict > 0 else None,
        seed=None if request.seed in (None, -1, _RANDOM_SEED) else request.seed,
        stop=with_family_stops(as_list(request.stop), settings.fim_template),
    )
    extra = tuple(Snippet(extra.filename, extra.text) for extra in request.input_extra or () if extra.text.strip())
    source = FimSource(
        settings.fim_template, request.input_prefix + (request.prompt or ""), request.input_suffix, snippets=extra
    )
    return make_call(
        origin,
        settings,
        PROTOCOL,
        request.model or settings.served_model_name,
        sampling,
        source,
        n=request.n_cmpl or 1,
        stream=bool(request.stream),
        enough=_enough(request),
    )


def _listed(samplers: list[str] | str | None, name: str) -> bool:
    """Samplers may also be named by letters, one each."""
    if samplers is None:
        return True
    return {"top_k": "k", "top_p": "p"}[name] in samplers if isinstance(samplers, str) else name in samplers


def _enough(request: InfillRequest) -> Enough | None:
    limit_s, indent = (request.t_max_predict_ms or 0) / 1000, request.n_indent or 0
    if limit_s <= 0 and indent <= 0:
        return None

    def enough(text: str, seconds: float) -> bool:
        late = 0 < limit_s < seconds and "\n" in text
        return late or within_indent(text, indent) < len(text)

    return enough


def within_indent(text: str, indent: int) -> int:
    """Length of `text` before the first later line with fewer blanks at its beginning. Blank lines do not count."""
    at = text.find("\n") + 1
    while indent and at:
        line = text[at:].partition("\n")[0]
        words = line.lstrip(" \t")
        if words and len(line) - len(words) < indent:
            return at
        at = text.find("\n", at) + 1
    return len(text)


class InfillWriter:
    """Answers to one call, in llama-server's shapes."""

    def __init__(self, request: InfillRequest, call: Call, settings: GatewaySettings) -> None:
        self._request = request
        self._call = call
        self._indent = request.n_indent or 0
        self._sampled = [0] * call.n
        self._settings = _generation_settings(call, settings)
        self._fits = call.fim is not None and call.fim.fits(settings.max_prompt_chars)

    def chunk(self, visible: Visible) -> bytes | None:
        """One part of the text."""
        self._sampled[visible.index] += len(visible.source.token_ids or ())
        if not visible.text:
            return None
        return dumps(
            {
                "index": visible.index,
                "content": visible.text,
                "tokens": [],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": self._sampled[visible.index],
                "tokens_evaluated": len(visible.source.prompt_token_ids or ()),
            }
        )

    def tail(self, finished: Finished) -> Iterable[bytes]:
        """Per choice all but the text. llama-server sends no `[DONE]` here."""
        return [dumps(self._whole(finished, choice, "")) for choice in finished.capture.choices]

    def answer(self, finished: Finished, seen: Sequence[Visible]) -> bytes:
        """One object, or an array of several."""
        answers = [
            self._whole(finished, choice, choice.text[: within_indent(choice.text, self._indent)])
            for choice in finished.capture.choices
        ]
        return dumps(answers if len(answers) > 1 else answers[0])

    def _whole(self, finished: Finished, choice: ChoiceCapture, text: str) -> dict[str, Any]:
        prompt, sampled = len(finished.capture.prompt_token_ids), len(choice.token_ids)
        stopped_by = choice.stop_reason if isinstance(choice.stop_reason, str) else ""
        whole = {
            "index": choice.index,
            "content": text,
            "tokens": [],
            "id_slot": -1,
            "stop": True,
            "model": self._call.client_model,
            "tokens_predicted": sampled,
            "tokens_evaluated": prompt,
            "generation_settings": self._settings,
            "has_new_line": "\n" in choice.text,
            "truncated": not self._fits,
            "stop_type": "limit" if choice.finish_reason != "stop" else "word" if stopped_by else "eos",
            "stopping_word": stopped_by,
            "tokens_cached": prompt + sampled,
            "timings": timings(prompt, sampled, finished),
        }
        return chosen(whole, self._request.response_fields)


def warm_up(request: InfillRequest, settings: GatewaySettings) -> bytes:
    """Nothing was read and nothing sampled."""
    whole: dict[str, Any] = {
        "index": 0,
        "content": "",
        "tokens": [],
        "id_slot": -1,
        "stop": True,
        "model": request.model or settings.served_model_name,
        "tokens_predicted": 0,
        "tokens_evaluated": 0,
        "generation_settings": {"n_ctx": settings.max_model_len, "n_predict": 0},
        "has_new_line": False,
        "truncated": False,
        "stop_type": "limit",
        "stopping_word": "",
        "tokens_cached": 0,
        "timings": _timings(0, 0.0, 0, 0.0),
    }
    return dumps(chosen(whole, request.response_fields))


def chosen(whole: dict[str, Any], fields: list[str] | None) -> dict[str, Any]:
    """Only `fields`, each under its path as its name, as llama-server does it; everything where none is named."""
    if not fields:
        return whole
    found: dict[str, Any] = {}
    for field in fields:
        value: Any = whole
        for name in field.split("/"):
            value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
        if value is not _MISSING:
            found[field] = value
    return found


_MISSING = object()


def timings(prompt: int, sampled: int, finished: Finished) -> dict[str, Any]:
    """Reading the prompt ends with the first token, as clients see it: waiting for the engine is in it."""
    first_s = finished.total_s if finished.first_token_s is None else finished.first_token_s
    return _timings(prompt, first_s * 1000, sampled, (finished.total_s - first_s) * 1000)


def _timings(prompt_n: int, prompt_ms: float, predicted_n: int, predicted_ms: float) -> dict[str, Any]:
    return {
        "prompt_n": prompt_n,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt_n if prompt_n else 0.0,
        "prompt_per_second": 1000 * prompt_n / prompt_ms if prompt_ms else 0.0,
        "predicted_n": predicted_n,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / predicted_n if predicted_n else 0.0,
        "predicted_per_second": 1000 * predicted_n / predicted_ms if predicted_ms else 0.0,
    }


def _generation_settings(call: Call, settings: GatewaySettings) -> dict[str, Any]:
    sampling = call.sampling
    return {
        "n_ctx": settings.max_model_len,
        "n_predict": sampling.max_tokens,
        "seed": sampling.seed if sampling.seed is not None else _RANDOM_SEED,
        "temperature": sampling.temperature,
        "top_k": max(sampling.top_k, 0),
        "top_p": sampling.top_p,
        "stop": list(sampling.stop),
        "stream": call.stream,
    }
