"""Finds secrets in code and puts a mark in their place, before anything is stored. Pure.

In: text, and the ends of the lines that it stands in. Out: the text without its secrets, and what kinds there were.

What a secret looks like is the knowledge of bc-detect-secrets, the maintained fork of Yelp's detect-secrets (patterns,
entropy limits, heuristics against false alarms), read as data and never asked to verify anything over the network. Its
own scanner takes milliseconds for a prompt; here plain byte searches choose the few lines that the patterns look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from detect_secrets.filters import heuristic
from detect_secrets.plugins import (
    artifactory,
    aws,
    basic_auth,
    cloudant,
    discord,
    github_token,
    high_entropy_strings,
    jwt,
    keyword,
    mailchimp,
    npm,
    private_key,
    sendgrid,
    slack,
    square_oauth,
    stripe,
    twilio,
)
from detect_secrets.plugins.base import RegexBasedDetector

from shared.fim import SPECIAL_TOKENS

KEYWORD_KIND = "secret-keyword"
TOKEN_DETECTORS: tuple[type[RegexBasedDetector], ...] = (
    artifactory.ArtifactoryDetector,
    aws.AWSKeyDetector,
    basic_auth.BasicAuthDetector,
    cloudant.CloudantDetector,
    discord.DiscordBotTokenDetector,
    github_token.GitHubTokenDetector,
    jwt.JwtTokenDetector,
    mailchimp.MailchimpDetector,
    npm.NpmDetector,
    sendgrid.SendGridDetector,
    slack.SlackDetector,
    square_oauth.SquareOAuthDetector,
    stripe.StripeDetector,
    twilio.TwilioKeyDetector,
)
"""Secrets that are known by their own shape. Nothing that a line of ordinary code looks like."""

WORDS = (b"key", b"pass", b"pwd", b"token", b"secret", b"contrase")
"""Each keyword of the detector contains one of these (a test holds it)."""
SENTINELS = (b"xox", b"hooks.slack", b"AKC", b"://")
"""Begin what may be a secret without a long run of its characters."""
LONG_RUN = 20
"""Characters in a row, without a blank or a dot, that make a line worth a look. With a digit among them."""
_RUN = b"a" * LONG_RUN
_TOKEN_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_-=")
_TO_RUNS = bytes(ord("a") if char in _TOKEN_CHARS else ord(" ") for char in range(256))

MAX_LINE = 4096
"""Longer lines are looked at in pieces, so that no pattern ever sees more."""
_PIECE_OVERLAP = 256
_MIN_KEYWORD_VALUE = 6
_MARK = re.compile(r"<redacted:[a-z0-9-]+>")
_BREAKS = re.compile("|".join(["\n", *sorted(map(re.escape, SPECIAL_TOKENS), key=len, reverse=True)]))
_KEYWORD = re.compile("|".join(keyword.DENYLIST), re.IGNORECASE)
_QUOTED = re.compile("['\"`]([^'\"`\\s]{6,})")
_NAME_SIGNS = dict.fromkeys(map(ord, "_-."))
_CONFIG_LINE = re.compile(r"\s*(?:export\s+|-\s+)?(?:[A-Z][A-Z0-9_]*=|[\w.-]+:\s+)[^\s\[\](){}'\"`]+\s*$")
"""`NAME=value` of a shell or an env file, `name: value` of YAML."""
_ALONE = re.compile(r"\s*([A-Za-z0-9+/=_-]{40,})\s*\Z")
"""A line of nothing else: the middle of a key of many lines."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets."""

    text: str
    kinds: tuple[str, ...] = ()
    """What was taken out, in alphabetical order, each kind once; empty where nothing was found."""


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    end: int
    kind: str


def redact(text: str, *, before: str = "", after: str = "") -> Redacted:
    """`text` with `<redacted:kind>` for every secret in it.

    `before`, `after`: what it stands between, so that `password = "` before it tells what it is. They are not changed.
    """
    head, tail = before[before.rfind("\n") + 1 :][-MAX_LINE:], after.partition("\n")[0][:MAX_LINE]
    found = _merged(_find(f"{head}{text}{tail}"))
    begin, end = len(head), len(head) + len(text)
    inside = [
        _Found(max(one.start, begin) - begin, min(one.end, end) - begin, one.kind)
        for one in found
        if one.end > begin and one.start < end
    ]
    if not inside:
        return Redacted(text)
    return Redacted(_replaced(text, inside), tuple(sorted({one.kind for one in inside})))


def has_mark(text: str) -> bool:
    """Whether something was taken out of `text`."""
    return "<redacted:" in text and _MARK.search(text) is not None


def _replaced(text: str, found: Iterable[_Found]) -> str:
    parts, at = [], 0
    for one in found:
        parts += [text[at : one.start], f"<redacted:{one.kind}>"]
        at = one.end
    return "".join([*parts, text[at:]])


def _merged(found: Iterable[_Found]) -> list[_Found]:
    """In order, without overlaps: what overlaps is one secret, of the kind that begins first (and is the longest)."""
    merged: list[_Found] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = _Found(last.start, max(last.end, one.end), last.kind)
        else:
            merged.append(one)
    return merged


def _find(text: str) -> Iterator[_Found]:
    raw = text.encode("latin-1", "replace")  # one byte per character, so positions are the text's
    lowered = raw.lower()
    for start, end in _lines(text, _hits(lowered, WORDS)):
        for begin, piece in _pieces(text, start, end):
            yield from (_Found(begin + a, begin + b, kind) for a, b, kind in _keyword_values(piece))
    for start, end in _lines(text, [*_hits(raw, SENTINELS), *_runs(raw)]):
        for begin, piece in _pieces(text, start, end):
            yield from (_Found(begin + a, begin + b, kind) for a, b, kind in _tokens(piece))
    if b"PRIVATE KEY" in raw or b"PuTTY" in raw:
        yield from _private_keys(text)


def _hits(raw: bytes, words: Iterable[bytes]) -> Iterator[int]:
    for word in words:
        at = raw.find(word)
        while at >= 0:
            yield at
            at = raw.find(word, at + len(word))


def _runs(raw: bytes) -> Iterator[int]:
    """Where long runs of a token's characters with a digit among them begin."""
    runs = raw.translate(_TO_RUNS)
    at = runs.find(_RUN)
    while at >= 0:
        end = runs.find(b" ", at)
        end = len(runs) if end < 0 else end
        if not raw[at:end].isalpha() and any(char in b"0123456789" for char in raw[at:end]):
            yield at
        at = runs.find(_RUN, end)


def _lines(text: str, hits: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Begin and end of the lines that are hit, each once. A special token of a model ends a line as well."""
    done = -1
    for at in sorted(set(hits)):
        if at < done:
            continue
        start = text.rfind("\n", 0, at) + 1
        done = text.find("\n", at)
        done = len(text) if done < 0 else done
        begin = start
        for mark in _BREAKS.finditer(text, start, done):
            yield begin, mark.start()
            begin = mark.end()
        yield begin, done


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The line in pieces that overlap, where it is too long to be looked at in one."""
    while end - start > MAX_LINE:
        yield start, text[start : start + MAX_LINE]
        start += MAX_LINE - _PIECE_OVERLAP
    yield start, text[start:end]


def _keyword_values(line: str) -> Iterator[tuple[int, int, str]]:
    """Values that are given to a name like `password` or `api_key`."""
    is_config = _CONFIG_LINE.match(line) is not None
    if not (is_config or any(map(_looks_like_value, _QUOTED.findall(line)))) or not _KEYWORD.search(line):
        return
    lowered = line.lower()
    if any(allowed in lowered for allowed in _allowed()):
        return
    all_patterns = keyword.CONFIG_DENYLIST_REGEX_TO_GROUP, keyword.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP
    for pattern, group in all_patterns[0 if is_config else 1].items():
        for match in pattern.finditer(line):
            if _is_value(match.group(group), line):
                yield match.start(group), match.end(group), KEYWORD_KIND


@cache
def _allowed() -> tuple[str, ...]:
    return tuple(name.lower() for name in keyword.ALLOWLIST if name != "example")


def _is_value(value: str, line: str) -> bool:
    """Not a name, a sentence, a placeholder or a reference: those are what most such lines hold."""
    return _looks_like_value(value) and not _is_harmless(value, line)


def _looks_like_value(value: str) -> bool:
    if len(value) < _MIN_KEYWORD_VALUE or any(map(str.isspace, value)):
        return False
    return not value.translate(_NAME_SIGNS).isalpha()


def _is_harmless(value: str, line: str) -> bool:
    return (
        heuristic.is_templated_secret(value)
        or heuristic.is_prefixed_with_dollar_sign(value)
        or heuristic.is_not_alphanumeric_string(value)
        or heuristic.is_sequential_string(value)
        or heuristic.is_potential_uuid(value)
        or "{" in value
        or "redacted:" in value
        or heuristic.is_indirect_reference(line)
    )


def _tokens(line: str) -> Iterator[tuple[int, int, str]]:
    for kind, pattern, check in _token_patterns():
        for match in pattern.finditer(line):
            group = next((number for number in range(1, pattern.groups + 1) if match.group(number)), 0)
            if kind not in _WHOLE and check(match.group(group)):
                yield match.start(group), match.end(group), kind
            elif kind in _WHOLE and check(match.group()):
                yield match.start(), match.end(), kind
    yield from _random_strings(line)


_WHOLE = frozenset({"github-token"})
"""Whose groups are a part of the secret, not the secret."""


@cache
def _token_patterns() -> list[tuple[str, re.Pattern[str], Callable[[str], bool]]]:
    def always(value: str) -> bool:
        return not heuristic.is_templated_secret(value) and "{" not in value

    checks: dict[type[RegexBasedDetector], Callable[[str], bool]] = {
        jwt.JwtTokenDetector: jwt.JwtTokenDetector.is_formally_valid
    }
    return [
        (_slug(detector.secret_type), pattern, checks.get(detector, always))
        for detector in TOKEN_DETECTORS
        for pattern in detector().denylist
    ]


def _random_strings(line: str) -> Iterator[tuple[int, int, str]]:
    """Strings that look drawn at random."""
    for plugin in _entropy():
        kind = _slug(plugin.secret_type)
        for match in plugin.regex.finditer(line):
            value = match.group(2)
            if len(value) >= LONG_RUN and _is_random(plugin, value, line):
                yield match.start(2), match.end(2), kind
    alone = _ALONE.match(line)
    if alone and _is_random(_entropy()[0], alone.group(1), line):
        yield alone.start(1), alone.end(1), _slug(_entropy()[0].secret_type)


def _is_random(plugin: high_entropy_strings.HighEntropyStringsPlugin, value: str, line: str) -> bool:
    if plugin.calculate_shannon_entropy(value) <= plugin.entropy_limit:
        return False
    return not (
        heuristic.is_sequential_string(value)
        or heuristic.is_potential_uuid(value)
        or heuristic.is_likely_id_string(value, line, plugin)
    )


@cache
def _entropy() -> tuple[high_entropy_strings.HighEntropyStringsPlugin, ...]:
    return high_entropy_strings.Base64HighEntropyString(), high_entropy_strings.HexHighEntropyString()


def _private_keys(text: str) -> Iterator[_Found]:
    for pattern in private_key.PrivateKeyDetector.denylist:
        for match in pattern.finditer(text):
            yield _Found(match.start(), match.end(), _slug(private_key.PrivateKeyDetector.secret_type))


@cache
def _slug(secret_type: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", secret_type.lower()).strip("-")
