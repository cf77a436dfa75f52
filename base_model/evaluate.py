"""How good the base model is on held-out modules, of mixed style and of teams' styles.

In: a model folder. Out: one ``Report`` per style. Three figures need words:

- *accepted*: share of completions sampled at temperature 0.6 that are at least 0.9 similar to the rest of the line,
  which is about when a simulated developer presses Tab;
- *chance*: what a perfect model would reach that knows everything but the taste and guesses evenly at each branch;
- *oracle*: share of moments the model gets right greedily when told which way to go wherever ways part: what it
  could reach if it knew the taste and learned nothing else.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rapidfuzz import fuzz
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from base_model.house import HELD_OUT_SEEDS, Style, generate_module
from base_model.house.branches import branch_offsets, guess_chance
from base_model.tokenizer import load_tokenizer
from clients.developer.moments import Moment, ask_moments
from clients.developer.prompts import END_OF_TEXT, fim_prompt, shown_text

TEMPERATURE = 0.6
SIMILAR = 0.9
MAX_TOKENS = 48
BATCH = 32


@dataclass(frozen=True, slots=True)
class Case:
    """A moment of a held-out module, with the branches that lie in the rest of its line (offsets into it)."""

    moment: Moment
    branches: frozenset[int]
    chance: float

    @property
    def prompt(self) -> str:
        """The prompt on the wire."""
        return fim_prompt(self.moment.prefix, self.moment.suffix)


@dataclass(frozen=True, slots=True)
class Report:
    """Shares of moments between 0 and 1; see the module's docstring."""

    style: str
    moments: int
    exact: float
    accepted: float
    oracle: float
    chance: float


def evaluate(folder: Path, style: Style | None, moments: int, seed: int = 0) -> Report:
    """Measures the model in ``folder`` on ``moments`` held-out moments written in ``style`` (``None``: mixed)."""
    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cases = held_out_cases(style, moments, seed)
    greedy = complete(model, tokenizer, cases, None, seed)
    sampled = complete(model, tokenizer, cases, TEMPERATURE, seed)
    return Report(
        style=style.name if style else "mixed",
        moments=len(cases),
        exact=_mean(text == case.moment.rest_of_line for text, case in zip(greedy, cases, strict=True)),
        accepted=_mean(_accepts(text, case.moment) for text, case in zip(sampled, cases, strict=True)),
        oracle=_mean(knows_all_but_taste(model, tokenizer, case) for case in cases),
        chance=_mean(case.chance for case in cases),
    )


def held_out_cases(style: Style | None, count: int, seed: int) -> list[Case]:
    """The first ``count`` cases of modules drawn from ``HELD_OUT_SEEDS``, six at most from each."""
    cases: list[Case] = []
    rng = random.Random(f"held-out-{seed}")
    while len(cases) < count:
        cases += _module_cases(rng.choice(HELD_OUT_SEEDS), style)
    return cases[:count]


def complete(
    model: Any, tokenizer: PreTrainedTokenizerFast, cases: list[Case], temperature: float | None, seed: int
) -> list[str]:
    """What would be shown for each case: greedily, or sampled at ``temperature``."""
    torch.manual_seed(seed)
    order = sorted(range(len(cases)), key=lambda i: len(cases[i].prompt))
    shown = [""] * len(cases)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        texts = _generate(model, tokenizer, [cases[i].prompt for i in chosen], temperature)
        for i, text in zip(chosen, texts, strict=True):
            shown[i] = shown_text(text, cases[i].moment.prefix, cases[i].moment.suffix)
    return shown


@torch.no_grad()
def knows_all_but_taste(model: Any, tokenizer: PreTrainedTokenizerFast, case: Case) -> bool:
    """Whether the greedy token is right at every place of the rest of the line where no ways part."""
    prompt = tokenizer(case.prompt).input_ids
    target = tokenizer(case.moment.rest_of_line + END_OF_TEXT, return_offsets_mapping=True)
    ids = torch.tensor([prompt + target.input_ids])
    guesses = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist()
    return all(
        guess == token or not case.branches.isdisjoint(range(*span))
        for guess, token, span in zip(guesses, target.input_ids, target.offset_mapping, strict=True)
    )


def _module_cases(seed: int, style: Style | None) -> Iterator[Case]:
    module = generate_module(seed, style)
    offsets = branch_offsets(module)
    for moment in ask_moments(module.source, random.Random(f"ask-{seed}"), limit=6):
        yield _case(moment, offsets)


def _case(moment: Moment, offsets: Counter[int]) -> Case:
    start = len(moment.prefix)
    end = start + len(moment.rest_of_line)
    inside = frozenset(offset - start for offset in offsets if start <= offset <= end)
    return Case(moment, inside, guess_chance(offsets, start, end))


@torch.no_grad()
def _generate(
    model: Any, tokenizer: PreTrainedTokenizerFast, prompts: list[str], temperature: float | None
) -> list[str]:
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    out = model.generate(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=MAX_TOKENS, **sampling
    )
    answers = out[:, batch.input_ids.shape[1] :]
    return [str(text) for text in tokenizer.batch_decode(answers, skip_special_tokens=False)]


def _accepts(text: str, moment: Moment) -> bool:
    return fuzz.ratio(text, moment.rest_of_line) >= 100 * SIMILAR


def _mean(values: Any) -> float:
    listed = [float(value) for value in values]
    return sum(listed) / len(listed)
