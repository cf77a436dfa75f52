"""Training rows: prompts exactly as the editor sends them, each followed by the rest of the line and end-of-text.

Most holes are moments at which a simulated developer would pause; the others stand anywhere in the file, so that
the model has seen every place. Some prompts are cut to the lines near the cursor, as a client's prompt limit does.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from base_model.house import BASE_SEEDS, generate_module
from clients.developer.moments import ask_moments
from clients.developer.prompts import END_OF_TEXT, fim_prompt

HOLES_PER_MODULE = 3
ANYWHERE_RATE = 0.15


Row = tuple[list[int], int]
"""Token ids of prompt and answer, and the length of the prompt."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A prompt and the text that belongs into it, without its end-of-text."""

    prompt: str
    middle: str

    @property
    def target(self) -> str:
        """What the model learns to answer."""
        return self.middle + END_OF_TEXT


def training_holes(seed: int, near_share: float) -> Iterator[Hole]:
    """Holes without end, over modules of mixed style drawn from ``BASE_SEEDS``.

    A share ``near_share`` of the prompts holds little more than the function around the cursor. Such prompts are a
    fifth as long as whole files, and a model learns from them first how the two sides of a hole belong together.
    """
    rng = random.Random(f"holes-{seed}-{near_share}")
    while True:
        source = generate_module(rng.choice(BASE_SEEDS)).source
        for moment in ask_moments(source, rng, limit=HOLES_PER_MODULE):
            hole = (moment.prefix, moment.suffix, moment.rest_of_line)
            prefix, suffix, middle = _anywhere(source, rng) if rng.random() < ANYWHERE_RATE else hole
            if rng.random() < near_share:
                prefix, suffix = _near(prefix, suffix, rng)
            yield Hole(fim_prompt(prefix, suffix), middle)


def repeats(vocabulary: range, seed: int) -> Iterator[Row]:
    """Rows without end of random tokens A B A, where all of the second A but its first token can be copied.

    A few hundred updates on these teach a model to look back for what it has seen before (induction heads, Olsson
    et al. 2022, arXiv 2209.11895), which code alone teaches a small model only after millions of tokens.
    """
    rng = random.Random(f"repeats-{seed}")
    while True:
        again = rng.choices(vocabulary, k=rng.randint(8, 40))
        between = rng.choices(vocabulary, k=rng.randint(0, 20))
        yield [*again, *between, *again], len(again) + len(between) + 1


def base_sources(count: int, seed: int) -> Iterator[str]:
    """Sources of mixed style: what the tokenizer is trained on."""
    rng = random.Random(f"sources-{seed}")
    for _ in range(count):
        yield generate_module(rng.choice(BASE_SEEDS)).source


def _anywhere(source: str, rng: random.Random) -> tuple[str, str, str]:
    lines = source.split("\n")
    at = rng.choice([i for i, line in enumerate(lines) if line.strip()])
    line = lines[at]
    column = rng.randrange(len(line) - len(line.lstrip()), len(line))
    prefix = "\n".join([*lines[:at], line[:column]])
    return prefix, "\n" + "\n".join(lines[at + 1 :]), line[column:]


def _near(prefix: str, suffix: str, rng: random.Random) -> tuple[str, str]:
    """From a few lines above the function that the cursor stands in, to a few lines below the cursor."""
    above, below = prefix.split("\n"), suffix.split("\n")
    starts = [i for i, line in enumerate(above) if line.lstrip().startswith(("def ", "class "))]
    top = max(0, max(starts, default=0) - rng.randrange(5))
    return "\n".join(above[top:]), "\n".join(below[: rng.randrange(2, 8)])
