"""Every answer of `/v1/completions` says which weights sampled its tokens: a small, explicit patch of vLLM 0.32.

vLLM counts per token which weight version sampled it, but tells nobody over HTTP. After `install()`:

- each SSE chunk carries `"weight_version"`: the version that sampled the chunk's first token (of a chunk without
  tokens: the last one known);
- a chunk whose tokens come from several versions (they were merged because the client read slowly) also carries
  `"weight_versions": [["17", 3, 5], ["18", 5, 6]]`: tokens [start, end) of that choice, exactly the chunk's own;
- the unstreamed answer carries `weight_version` (of choice 0's first token), and each choice its `weight_versions`.

`install()` raises `SettingsError` where vLLM is not as expected: no answer is better than a wrong version.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any

from shared.kit.errors import SettingsError

SUPPORTED = "0.32."
_STREAM_PARAMETERS = ["self", "request", "engine_inputs", "result_generator"]
_CHOICE = re.compile(r'"choices":\[\{"index":(\d+)')
_EVENT = "data: {"

Span = tuple[str, int, int]
"""Tokens [start, end) of a choice were sampled by this version."""


def install() -> None:
    """Patch vLLM in this process; call before its server is built."""
    state, serving = _checked()
    state._new_completion_output = _always_with_versions(state._new_completion_output)
    serving.completion_stream_generator = _stamped_stream(serving.completion_stream_generator)
    serving.request_output_to_completion_response = _stamped_answer(serving.request_output_to_completion_response)


class ChunkStamper:
    """Between vLLM's results and its SSE text: remembers which versions sampled the tokens of the next chunk.

    vLLM writes one chunk per output of a result, in order, before it takes the next result.
    """

    def __init__(self, choices_per_prompt: int) -> None:
        self._choices_per_prompt = choices_per_prompt
        self._sent: dict[int, int] = {}
        self._pending: dict[int, list[Span]] = {}
        self._last: dict[int, str] = {}

    async def watch(self, results: AsyncGenerator[tuple[int, Any], None]) -> AsyncIterator[tuple[int, Any]]:
        """The same results; each is looked at on its way."""
        async with aclosing(results):
            async for prompt_index, result in results:
                for output in result.outputs:
                    self._note(output.index + prompt_index * self._choices_per_prompt, output)
                yield prompt_index, result

    def stamp(self, event: str) -> str:
        """The event with its version; events without a choice (usage) get the last one, errors and the end none."""
        found = _CHOICE.search(event)
        if found is None:
            known = list(self._last.values())
            return _insert(event, known[-1], []) if known and '"choices":[]' in event else event
        choice = int(found.group(1))
        spans = self._pending.pop(choice, [])
        version = spans[0][0] if spans else self._last.get(choice)
        if spans:
            self._last[choice] = spans[-1][0]
        return event if version is None else _insert(event, version, spans)

    def _note(self, choice: int, output: Any) -> None:
        start = self._sent.get(choice, 0)
        end = start + len(output.token_ids)
        self._sent[choice] = end
        self._pending[choice] = clip(_spans(output), start, end)


def clip(spans: list[Span], start: int, end: int) -> list[Span]:
    """The parts of `spans` inside tokens [start, end)."""
    cut = [(version, max(first, start), min(last, end)) for version, first, last in spans]
    return [span for span in cut if span[1] < span[2]]


def _insert(event: str, version: str, spans: list[Span]) -> str:
    """Write the stamp as the event's first keys; the rest of vLLM's text stays as it is."""
    if not event.startswith(_EVENT):
        return event
    more = f'"weight_versions":{json.dumps(spans)},' if len(spans) > 1 else ""
    return f'{_EVENT}"weight_version":{json.dumps(version)},{more}{event[len(_EVENT) :]}'


def _spans(output: Any) -> list[Span]:
    return [(span.version, span.start, span.end) for span in output.weight_versions or []]


def _always_with_versions(original: Callable[..., Any]) -> Callable[..., Any]:
    """vLLM attaches the versions to a request's last output only."""

    def new_completion_output(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        output.weight_versions = self._weight_version_spans()
        return output

    return new_completion_output


def _stamped_stream(original: Callable[..., Any]) -> Callable[..., Any]:
    async def stream(
        self: Any, request: Any, engine_inputs: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[str, None]:
        stamper = ChunkStamper(request.n or 1)
        events = original(self, request, engine_inputs, stamper.watch(result_generator), *args, **kwargs)
        async with aclosing(events):
            async for event in events:
                yield stamper.stamp(event)

    return stream


def _stamped_answer(original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(self: Any, final_res_batch: list[Any], *args: Any, **kwargs: Any) -> Any:
        response = original(self, final_res_batch, *args, **kwargs)
        outputs = [output for result in final_res_batch for output in result.outputs]
        for choice, output in zip(response.choices, outputs, strict=True):
            choice.weight_versions = _spans(output)
        first = _spans(outputs[0]) if outputs else []
        response.weight_version = first[0][0] if first else None
        return response

    return answer


def _checked() -> tuple[Any, Any]:
    """The two classes to patch, or `SettingsError` with what has changed."""
    version = str(import_module("vllm").__version__)
    if not version.startswith(SUPPORTED):
        raise SettingsError(f"vLLM {version} is installed, but policy versions are only known to be right with 0.32.x")
    state = _attribute("vllm.v1.engine.output_processor", "RequestState")
    serving = _attribute("vllm.entrypoints.openai.completion.serving", "OpenAIServingCompletion")
    for owner, name in [
        (state, "_new_completion_output"),
        (state, "_weight_version_spans"),
        (state, "track_weight_version"),
        (serving, "completion_stream_generator"),
        (serving, "request_output_to_completion_response"),
    ]:
        _expect(callable(getattr(owner, name, None)), f"{owner.__name__}.{name} is gone")
    parameters = list(inspect.signature(serving.completion_stream_generator).parameters)
    _expect(parameters[:4] == _STREAM_PARAMETERS, "completion_stream_generator takes other arguments")
    _expect(_merge_keeps_versions(), "merged outputs lose their weight versions")
    return state, serving


def _merge_keeps_versions() -> bool:
    """Two results that meet in a slow client's queue are merged; the spans, which count from 0, must survive that."""
    outputs = import_module("vllm.outputs")

    def result(tokens: list[int], spans: list[Span]) -> Any:
        known = [outputs.WeightVersionSpan(*span) for span in spans]
        output = outputs.CompletionOutput(0, "", tokens, None, None, weight_versions=known)
        return outputs.RequestOutput("check", None, None, None, [output], False)

    merged = result([1], [("a", 0, 1)])
    merged.add(result([2], [("a", 0, 1), ("b", 1, 2)]), aggregate=True)
    return _spans(merged.outputs[0]) == [("a", 0, 1), ("b", 1, 2)]


def _attribute(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"this vLLM cannot be stamped with policy versions: {module}.{name} is gone") from error


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise SettingsError(f"this vLLM cannot be stamped with policy versions: {otherwise}")
