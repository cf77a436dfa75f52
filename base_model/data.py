"""Training rows: prompts exactly as the editor sends them, each followed by the rest of the line and end-of-text.

Most holes are moments at which a simulated developer would pause; the others stand anywhere in the file, so that
the model has seen every place. Some prompts lose lines at the top and at the bottom, as a client's prompt limit does.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from base_model.house import BASE_SEEDS, generate_module
from clients.developer.moments import ask_moments
from clients.developer.prompts import END_OF_TEXT, fim_prompt

HOLES_PER_MODULE = 2
ANYWHERE_RATE = 0.15
PRUNE_RATE = 0.1


@dataclass(frozen=True, slots=True)
class Hole:
    """A prompt and the text that belongs into it, without its end-of-text."""

    prompt: str
    middle: str

    @property
    def target(self) -> str:
        """What the model learns to answer."""
        return self.middle + END_OF_TEXT


def training_holes(seed: int) -> Iterator[Hole]:
    """Holes without end, over modules of mixed style drawn from ``BASE_SEEDS``."""
    rng = random.Random(f"holes-{seed}")
    while True:
        source = generate_module(rng.choice(BASE_SEEDS)).source
        moments = ask_moments(source, rng, limit=HOLES_PER_MODULE)
        holes = [(m.prefix, m.suffix, m.rest_of_line) for m in moments]
        for prefix, suffix, middle in holes:
            if rng.random() < ANYWHERE_RATE:
                prefix, suffix, middle = _anywhere(source, rng)
            if rng.random() < PRUNE_RATE:
                prefix, suffix = _prune(prefix, suffix, rng)
            yield Hole(fim_prompt(prefix, suffix), middle)


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


def _prune(prefix: str, suffix: str, rng: random.Random) -> tuple[str, str]:
    above, below = prefix.split("\n"), suffix.split("\n")
    top = rng.randrange(len(above))
    bottom = rng.randrange(1, len(below) + 1)
    return "\n".join(above[top:]), "\n".join(below[:bottom]) or "\n"
