"""What was sampled for one request: folds the engine's deltas into Generations. Pure.

In: `Delta`s in the order in which they came. Out: `Visible` parts for the client at once, `Generation`s at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from services.gateway.call import Call
from services.gateway.chunks import Delta
from services.gateway.stops import StopTrimmer
from shared.contracts.generation import FinishReason, Generation, PolicySpan
from shared.contracts.names import BASE_POLICY_VERSION, ENGINE_UNSET_VERSION

ROUNDING = 1e-4
"""A logprob may exceed 0 by this much: the engine's softmax rounds."""
IMPOSSIBLE = -9999.0
"""What vLLM writes for minus infinity; no sampled token has that."""
_FINISH_REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class Visible:
    """What a client may see of one delta."""

    index: int
    text: str
    source: Delta
    finish_reason: str | None


class ChoiceCapture:
    """One choice as sampled so far. `raw` is all of its text, `text` what the client may see of it."""

    def __init__(self, index: int, stop: tuple[str, ...]) -> None:
        self.index = index
        self.raw = ""
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.offsets: list[int] = []
        self._spans: list[list[int]] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.flaw: str | None = None
        self._trimmer = StopTrimmer(stop)

    def add(self, delta: Delta) -> Visible:
        """Take in what came."""
        new = delta.token_ids or []
        if delta.token_ids is None:
            self._flawed("no_token_ids")
        self._add_versions(delta, len(self.token_ids), len(new))
        self._add_offsets(delta, len(new))
        self._add_logprobs(delta, len(new))
        self.token_ids.extend(new)
        self.raw += delta.text
        return Visible(self.index, self._visible(delta), delta, delta.finish_reason)

    def _visible(self, delta: Delta) -> str:
        if delta.finish_reason is None:
            shown = self._trimmer.feed(delta.text)
        else:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason
            shown = self._trimmer.finish(delta.text, _stopped_by(delta))
        self.text += shown
        return shown

    def _add_versions(self, delta: Delta, start: int, count: int) -> None:
        if not count:
            return
        covered = 0
        for stamp, first, last in delta.versions or ((delta.version, start, start + count),):
            version = _version(stamp)
            if version is not None:
                self._add_span(version, first, last)
                covered += last - first
        if covered != count:
            self._flawed("no_policy_version")

    def _add_span(self, version: int, start: int, end: int) -> None:
        last = self._spans[-1] if self._spans else None
        if last is not None and last[0] == version and last[2] == start:
            last[2] = end
        else:
            self._spans.append([version, start, end])

    def _add_offsets(self, delta: Delta, count: int) -> None:
        """vLLM counts characters per token; the text is truth (special tokens may be left out of it), so each chunk
        starts again from the text's own length."""
        offsets = delta.offsets
        if len(offsets) != count:
            self._flawed("bad_logprobs")
        if offsets:
            shift = len(self.raw) - offsets[0]
            self.offsets += [offset + shift for offset in offsets] if shift else offsets

    def _add_logprobs(self, delta: Delta, count: int) -> None:
        values = delta.logprobs
        if len(values) != count or not all(map(_possible, values)):
            self._flawed("bad_logprobs")
            return
        self.logprobs += [min(0.0, cast(float, value)) for value in values]

    @property
    def spans(self) -> list[PolicySpan]:
        """Which version sampled which of the tokens."""
        return [PolicySpan(version=version, start=start, end=end) for version, start, end in self._spans]

    def _flawed(self, flaw: str) -> None:
        self.flaw = self.flaw or flaw


class Capture:
    """All choices of one request."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.choices = [ChoiceCapture(index, call.sampling.stop) for index in range(call.n)]
        self.prompt_token_ids: list[int] = []

    def add(self, delta: Delta) -> Visible | None:
        """Take in what came; None where a choice was never asked for."""
        if delta.prompt_token_ids:
            self.prompt_token_ids = delta.prompt_token_ids
        return self.choices[delta.index].add(delta) if 0 <= delta.index < len(self.choices) else None

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish reason."""
        return all(choice.finish_reason is not None for choice in self.choices)

    @property
    def sampled_tokens(self) -> int:
        """Of all choices."""
        return sum(len(choice.token_ids) for choice in self.choices)

    def generations(
        self, *, replica: str, client_gone: bool, failed: bool, first_token_s: float | None, total_s: float
    ) -> list[Generation]:
        """One per choice. A choice without an end was cut off by the client (or by us) or by a failure."""
        return [
            self._generation(choice, replica, client_gone, failed, first_token_s, total_s) for choice in self.choices
        ]

    def _generation(
        self,
        choice: ChoiceCapture,
        replica: str,
        client_gone: bool,
        failed: bool,
        first_token_s: float | None,
        total_s: float,
    ) -> Generation:
        call = self._call
        finished = choice.finish_reason is not None
        finish = choice.finish_reason or ("error" if failed else "abort")
        untrainable = self._untrainable(choice, finish)
        return Generation(
            generation_id=call.request_id if choice.index == 0 else f"{call.request_id}-{choice.index}",
            request_id=call.request_id,
            choice_index=choice.index,
            created_at=call.created_at,
            key_id=call.key_id,
            project_id=call.project_id,
            protocol=call.protocol,
            client_model=call.client_model,
            replica=replica,
            prompt=call.prompt,
            prompt_token_ids=self.prompt_token_ids,
            text=choice.text if finished else choice.raw,
            token_ids=choice.token_ids,
            logprobs=[] if untrainable == "bad_logprobs" else choice.logprobs,
            text_offsets=choice.offsets,
            finish_reason=cast(FinishReason, finish if finish in _FINISH_REASONS else "error"),
            stop_reason=choice.stop_reason,
            sampling=call.sampling,
            policy_spans=choice.spans,
            client_gone=client_gone and not finished,
            first_token_s=first_token_s,
            total_s=total_s,
            untrainable=untrainable,
        )

    def _untrainable(self, choice: ChoiceCapture, finish: str) -> str | None:
        if finish not in ("stop", "length", "abort"):
            return "engine_error"
        if not choice.token_ids or not self.prompt_token_ids:
            return "no_token_ids"
        if choice.flaw is not None:
            return choice.flaw
        if self._call.distorting:
            return "distorted_sampling"
        return None if self._call.sampling.full_support else "truncated_sampling"


def _stopped_by(delta: Delta) -> str | None:
    """What ends the text but does not belong to it: the stop string, or the end token's own text."""
    if delta.finish_reason != "stop":
        return None
    if isinstance(delta.stop_reason, str):
        return delta.stop_reason
    return delta.pieces[-1] if delta.pieces else None


def _possible(value: float | None) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and IMPOSSIBLE < value <= ROUNDING


@lru_cache(maxsize=64)
def _version(stamp: str | None) -> int | None:
    if stamp is None:
        return None
    if stamp == ENGINE_UNSET_VERSION:
        return BASE_POLICY_VERSION
    return int(stamp) if stamp.isascii() and stamp.isdigit() else None
