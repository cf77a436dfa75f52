"""The quick search never passes over what the patterns would find: it is held against them on every line of a text."""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterator

import pytest
from detect_secrets.filters import heuristic
from detect_secrets.plugins import keyword, private_key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.ingest import secrets
from services.ingest.redaction import Kept, without_secrets
from services.ingest.secret_hints import PRIVATE_KEYS, WORDS, folded, hints
from services.ingest.secret_patterns import (
    Found,
    TokenPattern,
    entropy_plugins,
    keyword_values,
    private_keys,
    slug,
    token_patterns,
)
from services.ingest.secrets import Redacted, redact
from shared import fim
from tests.factories import make_generation

SPECIALS = sorted(fim.SPECIAL_TOKENS)
patient = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)


# --- the detector without any shortcut ------------------------------------------------------------------------------


def every_find(text: str) -> Iterator[Found]:
    """All that the patterns find, each shown every line."""
    parts = re.split("(" + "|".join(["\n", *sorted(map(re.escape, SPECIALS), key=len, reverse=True)]) + ")", text)
    at = 0
    for part in parts:
        finds = [*keyword_values(part), *(f for one in token_patterns() for f in one.find(part)), *_random(part)]
        yield from ((at + start, at + end, kind) for start, end, kind in finds)
        at += len(part)
    yield from private_keys(text)


def _random(line: str) -> Iterator[Found]:
    base64, hexadecimal = entropy_plugins()
    quoted = [(plugin, match.span(2)) for plugin in (base64, hexadecimal) for match in plugin.regex.finditer(line)]
    alone = [(base64, match.span(1)) for match in re.finditer(r"\A\s*([A-Za-z0-9+/=_-]{40,})\s*\Z", line)]
    for plugin, (start, end) in [*quoted, *alone]:
        value = line[start:end]
        if len(value) < 20 or plugin.calculate_shannon_entropy(value) <= plugin.entropy_limit:
            continue
        explained = heuristic.is_sequential_string(value) or heuristic.is_potential_uuid(value)
        if not (explained or heuristic.is_likely_id_string(value, line, plugin)):
            yield start, end, slug(plugin.secret_type)


def slow_redact(text: str, before: str = "", after: str = "") -> Redacted:
    head, tail = before[before.rfind("\n") + 1 :], after.partition("\n")[0]
    return secrets._without(every_find(f"{head}{text}{tail}"), text, len(head))


def slow_without_secrets(prompt: str, text: str) -> tuple[str, str, tuple[str, ...]]:
    """Prompt, text and kinds, by four looks and no shortcut."""
    place = fim.parse(prompt)
    before, after = (place.prefix, place.suffix) if place else (prompt, "")
    clean = slow_redact(text, before, after)
    line = before[before.rfind("\n") + 1 :]
    looks = (slow_redact(line, after=behind) for behind in (after, text + after))
    at_cursor = next((one for one in looks if one.kinds), Redacted(line))
    rest = slow_redact(prompt.replace(line, at_cursor.text) if at_cursor.kinds else prompt)
    return rest.text, clean.text, tuple(sorted({*rest.kinds, *at_cursor.kinds, *clean.kinds}))


# --- texts with secrets ---------------------------------------------------------------------------------------------

code = st.text(string.ascii_letters + string.digits + " =:_\"'./-\n()[]<é\u212a\u0661", max_size=60)
values = st.text(string.ascii_letters + string.digits + "!#%-_", min_size=6, max_size=20)
names = st.one_of([st.from_regex(re.compile(name, re.IGNORECASE), fullmatch=True) for name in keyword.DENYLIST])
keywords = st.builds(
    lambda name, shape, value: shape.format(name=name, value=value),
    names,
    st.sampled_from(["{name} = '{value}'", '"{name}": "{value}"', "{name}: {value}", '{name} == "{value}"']),
    values,
)
tokens = st.one_of([st.from_regex(one.pattern) for one in token_patterns()])
blobs = st.builds(
    lambda opening, blob, closing: f"{opening}{blob}{closing}",
    st.sampled_from(["'", '"', "= ", ":", "\n"]),
    st.one_of(
        st.text(string.ascii_letters + string.digits + "+/\\-_=", min_size=18, max_size=80),
        st.permutations(string.ascii_letters + "+/\\-_=").flatmap(
            lambda all_: st.integers(18, 60).map(lambda n: "".join(all_[:n]))
        ),
        st.text(string.hexdigits, min_size=18, max_size=64),
        st.permutations("abcdefABCDEF" * 2).flatmap(lambda all_: st.integers(18, 24).map(lambda n: "".join(all_[:n]))),
    ),
    st.sampled_from(["'", '"', "", "\n"]),
)
keys = st.one_of([st.from_regex(one) for one in private_key.PrivateKeyDetector.denylist])
secret = st.one_of(keywords, tokens, blobs, keys)
texts = st.lists(st.one_of(code, secret, st.sampled_from(SPECIALS)), max_size=5).map("".join)


@patient
@given(texts)
def test_what_is_found_is_what_every_pattern_finds_on_every_line(text: str) -> None:
    assert redact(text) == slow_redact(text)


@patient
@given(texts, texts, texts)
def test_a_generation_is_looked_through_once_and_loses_the_same(before: str, text: str, after: str) -> None:
    prompt = fim.render("qwen", before, after)
    kept: Kept = without_secrets(make_generation(text, prompt=prompt))
    assert (kept.generation.prompt, kept.generation.text, kept.kinds) == slow_without_secrets(prompt, text)


@pytest.mark.parametrize("pattern", token_patterns(), ids=lambda one: f"{one.kind}: {one.pattern.pattern[:24]}")
def test_every_match_of_a_token_is_hinted_at(pattern: TokenPattern) -> None:
    @settings(patient, max_examples=30)
    @given(st.from_regex(pattern.pattern))
    def check(text: str) -> None:
        matched = pattern.pattern.search(text)
        assert matched
        assert any(hint in folded(matched.group()) for hint in pattern.hints)
        assert hints(matched.group()).tokens

    check()


@patient
@given(names)
def test_every_name_of_a_secret_is_hinted_at(name: str) -> None:
    assert hints(name).keywords


@patient
@given(keys)
def test_every_private_key_is_hinted_at(text: str) -> None:
    assert hints(text).private_key


def test_a_head_of_a_private_key_holds_a_word() -> None:
    assert all(any(word in head.lower() for word in WORDS) for head in ("-PRIVATE KEY-", "PuTTY-User-Key-File-2:"))
    patterns = "".join(one.pattern for one in private_key.PrivateKeyDetector.denylist)
    assert all(head in patterns for head in PRIVATE_KEYS)


def test_what_a_pattern_takes_for_a_letter_or_a_digit_is_one_when_it_is_folded() -> None:
    letter, digit = re.compile("[a-z]", re.IGNORECASE), re.compile(r"\d")
    for character in map(chr, range(sys.maxunicode + 1)):
        small = folded(character)
        assert len(small) == 1
        assert small.isascii()
        if letter.match(character):
            assert re.fullmatch(small, character, re.IGNORECASE)
        if digit.match(character):
            assert small in string.digits


def test_kinds_are_written_alike() -> None:
    assert slug("Base64 High Entropy String") == "base64-high-entropy-string"
