import ast

import pytest

from base_model.house import (
    BASE_SEEDS,
    HARBOR,
    HELD_OUT_SEEDS,
    POINTS,
    STYLES,
    TEAM_SEEDS,
    Style,
    generate_module,
    style_named,
)
from base_model.house.branches import branch_offsets, guess_chance

SEEDS = [*BASE_SEEDS[:60], *TEAM_SEEDS[:30], *HELD_OUT_SEEDS[:30]]


@pytest.mark.parametrize("style", [None, HARBOR, Style.random(3)], ids=["mixed", "harbor", "random"])
def test_every_module_is_python_of_the_promised_shape(style: Style | None) -> None:
    for seed in SEEDS:
        source = generate_module(seed, style).source
        ast.parse(source)
        assert source.endswith("\n")
        assert not any(mark in source for mark in ("\r", "\t", "\x01", "\x02", " \n"))
        assert 700 < len(source) < 2200


def test_the_same_seed_gives_the_same_module() -> None:
    assert generate_module(5, HARBOR) == generate_module(5, HARBOR)
    assert generate_module(5) == generate_module(5)
    assert generate_module(5) != generate_module(6)


def test_seed_ranges_are_disjoint_and_held_out_modules_are_new() -> None:
    assert BASE_SEEDS.stop <= TEAM_SEEDS.start
    assert TEAM_SEEDS.stop <= HELD_OUT_SEEDS.start
    base = {generate_module(seed).source for seed in BASE_SEEDS[:2000]}
    assert not any(generate_module(seed).source in base for seed in HELD_OUT_SEEDS[:200])


def test_a_style_changes_the_idioms_and_nothing_else() -> None:
    for seed in SEEDS:
        trees = [ast.parse(generate_module(seed, style).source) for style in (None, HARBOR, *STYLES.values())]
        names = [[n.name for n in ast.walk(t) if isinstance(n, ast.FunctionDef)] for t in trees]
        assert all(other == names[0] for other in names)


def test_a_team_writes_every_point_its_own_way_and_the_mixed_corpus_in_all_ways() -> None:
    team = {(c.point, c.way) for seed in SEEDS for c in generate_module(seed, HARBOR).choices}
    assert team == set(HARBOR.ways.items())
    mixed = {(c.point, c.way) for seed in SEEDS * 3 for c in generate_module(seed).choices}
    assert mixed == {(point, way) for point, ways in POINTS.items() for way in range(ways)}


def test_choices_say_what_stands_where() -> None:
    for seed in SEEDS:
        module = generate_module(seed, HARBOR)
        for choice in module.choices:
            assert module.source[choice.start : choice.end] not in choice.others


def test_branches_lie_where_ways_part() -> None:
    module = generate_module(1, HARBOR)
    start = module.source.index("raise ")
    end = module.source.index("\n", start)
    offsets = branch_offsets(module)
    assert 0 < guess_chance(offsets, start, end) <= 1 / 3
    assert guess_chance(offsets, 0, module.source.index("class ")) == 1


def test_styles_have_names() -> None:
    assert style_named("mixed") is None
    assert style_named("harbor") is HARBOR
    assert style_named("random-4") == Style.random(4)
    with pytest.raises(KeyError, match="no style"):
        style_named("nobody")
    with pytest.raises(ValueError, match="every point"):
        Style("half", {"key": 0})
