"""From a judged completion to an experience: what gateway and ingest do, without their services.

In: a sampled group, what was shown of its first completion, and the verdict. Out: an `Experience`, or why the trainer
does not get it. A rejected completion waits until a later prompt of the same developer shows what was typed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.learning.team import Pause
from clients.developer.prompts import STOP
from services.ingest.evidence import Evidence, visible_chars
from services.ingest.grouping import Display, Resolution, resolve
from services.ingest.rewards import RewardWeights
from services.ingest.settled import settled_text, typed_out
from services.ingest.shown import credited_tokens, locate
from services.trainer.learner_api import SampledGroup
from shared import fim
from shared.contracts.experience import Label
from shared.contracts.generation import Generation, PolicySpan, Sampling

MAX_TOKENS = 64
"""The gateway's limit."""
PATIENCE = 5
"""So many later requests of the developer are looked at for settled text; the service waits 30 s."""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Judged:
    """One event: a display and what its developer did with it."""

    number: int
    developer: str
    pause: Pause
    group: SampledGroup
    shown: str
    label: Label
    version: int
    temperature: float


@dataclass(slots=True)
class Waiting:
    """A rejected display whose place is watched."""

    event: Judged
    requests: int = 0

    def look(self, prompt: str) -> str | None:
        """What the developer's next request shows of the place."""
        self.requests += 1
        earlier, later = fim.parse(self.event.pause.prompt), fim.parse(prompt)
        return settled_text(earlier, later) if earlier and later else None

    @property
    def over(self) -> bool:
        """Nothing is hoped for any more."""
        return self.requests >= PATIENCE


def experience(event: Judged, settled: str | None, weights: RewardWeights) -> Resolution:
    """What ingest makes of the event."""
    shown, *siblings = [_generation(event, index) for index in range(len(event.group.samples))]
    span = locate(shown.text, event.shown)
    typed = typed_out(settled, event.shown) if settled else None
    display = Display(
        outcome_id=str(event.number),
        project_id="bench",
        label=event.label,
        shown_text=event.shown,
        credited_tokens=credited_tokens(_Candidate(shown), span) if span else 0,
        first_event_at=shown.created_at,
        filepath=event.pause.path,
        settled=settled,
        already_labelled=False,
        evidence=Evidence(event.label, shown_chars=visible_chars(event.shown), typed_out=typed),
    )
    return resolve(display, shown, siblings, weights)


def sampling(temperature: float) -> Sampling:
    """What the gateway asks the engine for when Continue asks it."""
    return Sampling(temperature=temperature, max_tokens=MAX_TOKENS, stop=STOP)


def _generation(event: Judged, index: int) -> Generation:
    """As the gateway records it: Continue hangs up behind the first line."""
    completion = event.group.samples[index]
    gone = "\n" in completion.text
    return Generation(
        generation_id=f"cmpl-{event.number}-{index}",
        request_id=f"cmpl-{event.number}",
        choice_index=index,
        created_at=_BEGIN + timedelta(seconds=event.number),
        key_id=event.developer,
        project_id="bench",
        protocol="completions",
        client_model="bench",
        replica="learner",
        prompt=event.pause.prompt,
        prompt_token_ids=event.group.prompt_token_ids,
        text=completion.text,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        text_offsets=completion.text_offsets,
        finish_reason="abort" if gone else completion.finish,
        stop_reason=completion.stop_reason,
        sampling=sampling(event.temperature),
        policy_spans=[PolicySpan(version=event.version, start=0, end=len(completion.token_ids))],
        client_gone=gone,
        total_s=0.0,
    )


class _Candidate:
    """A generation as `services.ingest.shown` looks at it."""

    def __init__(self, generation: Generation) -> None:
        self.text, self.token_ids = generation.text, generation.token_ids
        self.text_offsets, self.finish_reason = generation.text_offsets, str(generation.finish_reason)
        reason = generation.stop_reason
        self.stop_string = reason if isinstance(reason, str) else None
