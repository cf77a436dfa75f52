import random

import pytest

from base_model.house import HARBOR, TEAM_SEEDS, generate_module
from clients.developer.moments import (
    EDIT_RATE,
    MIN_REST,
    Moment,
    ask_moments,
    functions,
    moment_at,
    walk_function,
    walk_module,
)

SOURCE = '''import os


class Store:
    """Keeps rows."""

    @property
    def size(self) -> int:
        """How many."""
        return len(self.rows)


async def load(path: str) -> str:
    with open(path) as file:

        return file.read()
'''


def moments_of_many() -> list[tuple[str, Moment]]:
    sources = [generate_module(seed, HARBOR).source for seed in TEAM_SEEDS[:80]]
    return [(s, m) for i, s in enumerate(sources) for m in ask_moments(s, random.Random(i))]


def test_functions_know_their_lines() -> None:
    size, load = functions(SOURCE)
    assert (size.name, size.first, size.end, size.silent) == ("size", 6, 10, frozenset({6, 8}))
    assert (load.name, load.first, load.end) == ("load", 12, 16)


def test_a_moment_is_the_source_around_the_cursor() -> None:
    for source, moment in moments_of_many():
        lines = source.split("\n")
        assert lines[moment.line][moment.column :] == moment.rest_of_line
        assert source.startswith(moment.prefix + moment.rest_of_line)
        assert source.endswith(moment.suffix)
        assert moment.suffix.startswith("\n")
        assert len(moment.rest_of_line) >= MIN_REST
        assert len(moment.prefix) + len(moment.rest_of_line) + len(moment.suffix) <= len(source)


def test_while_typing_the_rest_of_the_function_is_not_there_and_in_an_edit_it_is() -> None:
    source = generate_module(TEAM_SEEDS[0], HARBOR).source
    function = functions(source)[0]
    lines = source.split("\n")
    kinds = set()
    for seed in range(40):
        walk = walk_function(source, function, random.Random(seed))
        moment = moment_at(source, walk, function.first + 1, 8)
        below = function.end if walk.kind == "typing" else function.first + 2
        assert moment.suffix == "\n" + "\n".join(lines[below:])
        kinds.add(walk.kind)
    assert kinds == {"typing", "edit"}


def test_the_rates_are_as_documented() -> None:
    moments = [moment for _, moment in moments_of_many()]
    lines = sum(
        1
        for seed in TEAM_SEEDS[:80]
        for walk in walk_module(generate_module(seed, HARBOR).source, random.Random(1))
        for line in walk.lines
        if line.text.strip() and line.number not in walk.function.silent
    )
    assert 0.4 < len(moments) / lines < 0.65
    assert abs(sum(m.kind == "edit" for m in moments) / len(moments) - EDIT_RATE) < 0.08
    assert {m.place for m in moments} == {"start", "gap", "word"}


def test_nobody_pauses_on_decorators_docstrings_blank_lines_or_function_names() -> None:
    for seed in range(200):
        for moment in ask_moments(SOURCE, random.Random(seed)):
            assert moment.line in {7, 9, 12, 13, 15}
            if moment.line in {7, 12}:
                assert moment.prefix.endswith("(")


def test_pauses_ascend_and_are_the_same_for_the_same_seed() -> None:
    walks = walk_module(SOURCE, random.Random(3))
    assert walks == walk_module(SOURCE, random.Random(3))
    assert all(list(line.pauses) == sorted(set(line.pauses)) for walk in walks for line in walk.lines)


def test_a_limit_keeps_that_many_in_order() -> None:
    source = generate_module(TEAM_SEEDS[1], HARBOR).source
    some = ask_moments(source, random.Random(1), limit=3)
    assert len(some) == 3
    assert [m.line for m in some] == sorted(m.line for m in some)


def test_nothing_left_of_a_line_is_an_error() -> None:
    walk = walk_module(SOURCE, random.Random(0))[0]
    with pytest.raises(ValueError, match="nothing left"):
        moment_at(SOURCE, walk, 9, 200)
