"""The fixed held-out set: what the developers would have done with the policy's completions. Judging is that of
`clients.developer.evaluation`, with the product's rewards whatever an algorithm learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from benchmarks.learning.team import STYLE
from clients.developer.evaluation import EvaluationConfig, Judged, evaluation_moments, judge
from clients.developer.moments import Moment
from clients.developer.prompts import fim_prompt, shown_text
from services.trainer.learner_api import SampledGroup


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over the moments of the fixed set."""

    reward: float
    acceptance: float
    """Accepted of all moments, weighted by persona."""
    acceptance_of_shown: float
    suggestion_rate: float
    """Share of moments at which anything is shown."""
    exact: float
    mean_chars: float
    """Of what is shown."""
    mean_tokens: float
    """Sampled, the end token included."""

    def as_dict(self) -> dict[str, float]:
        """For a result file."""
        return asdict(self)


class HeldOut:
    """`count` moments of modules that no developer types and no model was trained on."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.config = EvaluationConfig(key="", style=STYLE, seed=seed, moments=count)
        self.moments = evaluation_moments(seed, count, STYLE)
        self.prompts = [fim_prompt(moment.prefix, moment.suffix) for moment in self.moments]

    def measure(self, groups: Sequence[SampledGroup]) -> Measured:
        """One completion for each moment, in order."""
        texts = [group.samples[0].text for group in groups]
        judged = [judge(self.config, moment, text, 0.0) for moment, text in zip(self.moments, texts, strict=True)]
        shown = [_chars(moment, text) for moment, text in zip(self.moments, texts, strict=True)]
        tokens = [len(group.samples[0].token_ids) for group in groups]
        return summed_up(judged, shown, tokens)


def summed_up(judged: Sequence[Judged], shown_chars: Sequence[int], tokens: Sequence[int]) -> Measured:
    """Means; those over what is shown are 0 where nothing is."""
    shown = [one for one in judged if one.shown]
    return Measured(
        reward=fmean(one.reward for one in judged),
        acceptance=fmean(one.acceptance for one in judged),
        acceptance_of_shown=fmean(one.acceptance for one in shown) if shown else 0.0,
        suggestion_rate=len(shown) / len(judged),
        exact=fmean(one.exact for one in judged),
        mean_chars=sum(shown_chars) / len(shown) if shown else 0.0,
        mean_tokens=fmean(tokens),
    )


def _chars(moment: Moment, text: str) -> int:
    return len(shown_text(text, moment.prefix, moment.suffix))
