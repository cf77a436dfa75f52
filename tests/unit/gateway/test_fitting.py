from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.call import Origin, make_call
from services.gateway.fitting import FimSource, fit, fitting
from services.gateway.sampling import make_sampling
from services.gateway.settings import GatewaySettings
from shared.fim import Snippet, parse
from tests.unit.gateway.support import NOW

ORIGIN = Origin("key-1", "default", NOW, 0.0)
LINES = st.lists(st.text(st.sampled_from("ab é(\t"), max_size=40), max_size=60).map("\n".join)
BIG = "".join(f"line {number} of a file with two thousand lines\n" for number in range(2000))


@settings(deadline=None)
@given(LINES, LINES, st.integers(min_value=1, max_value=3000))
def test_the_text_around_the_cursor_stays(prefix: str, suffix: str, room: int) -> None:
    before, after = fit(prefix, suffix, room)

    assert len(before) + len(after) <= room
    assert prefix.endswith(before)
    assert suffix.startswith(after)
    if len(prefix) + len(suffix) <= room:
        assert (before, after) == (prefix, suffix)
    elif len(prefix) > room and len(suffix) > room > 100:
        assert len(before) >= room // 2
        assert len(after) >= room // 8 - 1


def test_in_the_middle_of_two_thousand_lines() -> None:
    before, after = fit(BIG + "x = ", "\n" + BIG, 6000)

    assert 4000 < len(before) <= 6000 - len(after)
    assert before.startswith("line ")
    assert before.endswith("x = ")
    assert after.startswith("\nline 0 ")
    assert after.endswith("lines\n")


def test_the_beginning_stays_while_somebody_types() -> None:
    starts = {fit(BIG + "x" * typed, "\n", 6000)[0][:40] for typed in range(600)}

    assert len(starts) <= 2


def test_a_side_that_is_short_leaves_its_room_to_the_other() -> None:
    assert len(fit("short", BIG, 6000)[1]) > 5000
    assert len(fit(BIG, "", 6000)[0]) > 5000


def test_one_endless_line() -> None:
    before, after = fit("x" * 10_000, "y" * 10_000, 1000)

    assert 600 <= len(before) <= 750
    assert len(after) == 250


def test_other_files_go_first_the_last_of_them_before_the_others() -> None:
    snippets = (Snippet("a.py", "a" * 100), Snippet("b.py", "b" * 100), Snippet("c.py", "c" * 100))
    source = FimSource("qwen", "p" * 500, "s" * 100, path="m.py", snippets=snippets)

    assert source.fits(2000)
    assert all(snippet.text in source.prompt(2000) for snippet in snippets)
    assert not source.fits(900)
    assert "b" * 100 in source.prompt(900)
    assert "c" * 100 not in source.prompt(900)
    assert source.prompt(620) == "<|fim_prefix|>" + "p" * 500 + "<|fim_suffix|>" + "s" * 100 + "<|fim_middle|>"
    assert fitting(snippets, 0) == []


def test_the_engines_context_bounds_the_prompt() -> None:
    values = GatewaySettings(max_model_len=1000, max_completion_tokens=200, chars_per_token=2.0)
    source = FimSource("qwen", BIG, BIG)

    call = make_call(ORIGIN, values, "tabby", "m", make_sampling(values, "default", temperature=0), source)

    assert 1000 < len(call.prompt) <= 1600 + 42


def test_a_refused_prompt_gets_shorter_until_nothing_is_left() -> None:
    values = GatewaySettings()
    sampling = make_sampling(values, "default", temperature=0)
    call = make_call(ORIGIN, values, "tabby", "m", sampling, FimSource("qwen", BIG, BIG))
    lengths = []
    while (shorter := call.shorter()) is not None:
        lengths.append(len(shorter.prompt))
        assert parse(shorter.prompt) is not None
        assert shorter.request_id == call.request_id
        call = shorter
        assert len(lengths) < 20

    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 100


@pytest.mark.parametrize("prompt", ["x" * 9999, "<|fim_prefix|>" + "x" * 9999 + "<|fim_suffix|><|fim_middle|>"])
def test_a_clients_own_prompt_is_never_cut(prompt: str) -> None:
    values = GatewaySettings()

    call = make_call(ORIGIN, values, "openai", "m", make_sampling(values, "default", temperature=0), prompt)

    assert call.prompt == prompt
    assert call.shorter() is None
