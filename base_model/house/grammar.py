"""From a seed to a module: which entity, which fields, which functions; the idioms fill in the lines."""

from base_model.house import names
from base_model.house.draft import Draft, Module
from base_model.house.parts import FUNCTIONS, METHODS, Part, Subject
from base_model.house.styles import Style

BASE_SEEDS = range(0, 500_000_000)
TEAM_SEEDS = range(500_000_000, 800_000_000)
HELD_OUT_SEEDS = range(800_000_000, 1_000_000_000)


def generate_module(seed: int, style: Style | None = None) -> Module:
    """The module of ``seed``, written with the taste of ``style``, or with mixed taste. Deterministic."""
    d = Draft(seed, style)
    s = _draw_subject(d)
    methods = _draw_parts(d, METHODS, 3)
    lines = [*_header(d, s), f"class {s.name}Repository(Repository[{s.name}]):"]
    for i, method in enumerate(methods):
        lines += ([""] if i else []) + [f"    {line}" if line else "" for line in method(d, s)]
    for function in _draw_parts(d, FUNCTIONS, 3):
        lines += ["", "", *function(d, s)]
    return d.finish(f"house/{s.entity}s.py", "\n".join(lines) + "\n")


def _draw_subject(d: Draft) -> Subject:
    entity = d.names.choice(names.ENTITIES)
    first, second = d.names.sample(names.TEXT_FIELDS, 2)
    one, two, three = d.names.sample(names.STATUSES, 3)
    number = d.names.choice(names.NUMBER_FIELDS)
    return Subject(entity, entity.capitalize(), (first, second), number, (one, two, three))


def _draw_parts(d: Draft, parts: list[Part], count: int) -> list[Part]:
    return [parts[i] for i in sorted(d.names.sample(range(len(parts)), count))]


def _header(d: Draft, s: Subject) -> list[str]:
    return [
        f'"""{s.name}s of the {d.names.choice(names.DESKS)} desk."""',
        "",
        "from house.kit import *",
        "",
        "",
        "@dataclass(frozen=True)",
        f"class {s.name}:",
        "    id: str",
        *[f"    {text}: str" for text in s.texts],
        f"    {s.number}: int",
        "    status: str",
        "    changed: datetime",
        "",
        "",
    ]
