"""A house codebase, generated: what the small base model learns from, and what the simulated developers type.

This is a designed domain. Every module is regular (a dataclass, its repository, checks, queries, transitions), and at
some thirty *idiom points* there are two to four ways to write the same thing: which error is raised, how a log event
is phrased, how a list is filtered, what a local is called. In the base corpus (``style=None``, "many houses mixed")
each occurrence picks its way at random and independently, so nothing can be inferred from context. A team has a
``Style``: the same way everywhere. The base model never sees a team's code; the team's taste is exactly what is left
for online learning to find out. Figures shown on this domain say how the loop works, not how the model does on
real-world code.

    generate_module(seed, style) -> Module(path, source, choices)

The same seed gives the same entity, fields and functions under every style; only the idioms differ. Seeds are
divided: ``BASE_SEEDS`` for training the base model, ``TEAM_SEEDS`` for simulated developers, ``HELD_OUT_SEEDS``
for evaluation.
"""

from base_model.house.draft import Choice, Module
from base_model.house.grammar import BASE_SEEDS, HELD_OUT_SEEDS, TEAM_SEEDS, generate_module
from base_model.house.styles import HARBOR, POINTS, STYLES, Style, style_named

__all__ = [
    "BASE_SEEDS",
    "HARBOR",
    "HELD_OUT_SEEDS",
    "POINTS",
    "STYLES",
    "TEAM_SEEDS",
    "Choice",
    "Module",
    "Style",
    "generate_module",
    "style_named",
]
