"""What a secret looks like, on one line of text. Pure.

The knowledge is that of bc-detect-secrets, the maintained fork of Yelp's detect-secrets (patterns, entropy limits,
heuristics against false alarms), read as data and never asked to verify anything over the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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

from services.ingest.secret_hints import LONG_RUN, folded

KEYWORD_KIND = "secret-keyword"
TOKEN_DETECTORS: dict[type[RegexBasedDetector], tuple[str, ...]] = {
    artifactory.ArtifactoryDetector: ("akc", "artif", "jfrog", "buildkit"),
    aws.AWSKeyDetector: ("a3t", "abia", "acca", "akia", "asia", "aws"),
    basic_auth.BasicAuthDetector: ("://",),
    cloudant.CloudantDetector: ("key", "pw", "pass", "token", "cloudant"),
    discord.DiscordBotTokenDetector: (".",),
    github_token.GitHubTokenDetector: ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    jwt.JwtTokenDetector: ("eyj",),
    mailchimp.MailchimpDetector: ("-us",),
    npm.NpmDetector: ("npm", "_authtoken"),
    sendgrid.SendGridDetector: ("sg.",),
    slack.SlackDetector: ("xox", "hooks.slack"),
    square_oauth.SquareOAuthDetector: ("sq0csp-",),
    stripe.StripeDetector: ("k_live_",),
    twilio.TwilioKeyDetector: ("ac", "sk"),
}
"""Secrets that are known by their own shape, and what each match has in it when it is folded: only lines that have it
are shown to the pattern. Nothing that a line of ordinary code looks like."""

Found = tuple[int, int, str]
"""Begin, end, kind."""

_MIN_KEYWORD_VALUE = 6
_KEYWORD = re.compile("|".join(keyword.DENYLIST), re.IGNORECASE)
_QUOTED = re.compile("['\"`]([^'\"`\\s]{6,})")
_NAME_SIGNS = dict.fromkeys(map(ord, "_-."))
_CONFIG_LINE = re.compile(r"\s*(?:export\s+|-\s+)?(?:[A-Z][A-Z0-9_]*=|[\w.-]+:\s+)[^\s\[\](){}'\"`]+\s*$")
"""`NAME=value` of a shell or an env file, `name: value` of YAML."""
_ALONE = re.compile(r"\s*([A-Za-z0-9+/=_-]{40,})\s*\Z")
"""A line of nothing else: the middle of a key of many lines."""


def keyword_values(line: str) -> Iterator[Found]:
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


@dataclass(frozen=True, slots=True, eq=False)
class TokenPattern:
    """One pattern of a detector."""

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool]
    """Whether what matched is one."""
    is_whole: bool
    """The whole match is the secret; else the first group that took part is."""
    hints: tuple[str, ...]
    """One of them is in every match, folded."""

    def find(self, line: str) -> Iterator[Found]:
        """All that it matches and that is one."""
        for match in self.pattern.finditer(line):
            groups = () if self.is_whole else range(1, self.pattern.groups + 1)
            group = next((number for number in groups if match.group(number)), 0)
            if self.check(match.group(group)):
                yield match.start(group), match.end(group), self.kind


def tokens(line: str) -> Iterator[Found]:
    """Secrets that are known by their shape, and strings that look drawn at random."""
    small = folded(line)
    for one in dict.fromkeys([one for hint, one in _hints() if hint in small]):
        yield from one.find(line)
    yield from random_strings(line)


@cache
def token_patterns() -> list[TokenPattern]:
    """Of all the token detectors."""
    return [
        TokenPattern(
            slug(detector.secret_type),
            pattern,
            jwt.JwtTokenDetector.is_formally_valid if detector is jwt.JwtTokenDetector else _is_no_template,
            is_whole=detector is github_token.GitHubTokenDetector,  # its group is a part of the secret
            hints=hints,
        )
        for detector, hints in TOKEN_DETECTORS.items()
        for pattern in detector().denylist
    ]


@cache
def _hints() -> list[tuple[str, TokenPattern]]:
    return [(hint, one) for one in token_patterns() for hint in one.hints]


def _is_no_template(value: str) -> bool:
    return not heuristic.is_templated_secret(value) and "{" not in value


def random_strings(line: str) -> Iterator[Found]:
    """Strings that look drawn at random."""
    for plugin in entropy_plugins():
        for match in plugin.regex.finditer(line):
            if is_random(plugin, match.group(2), line):
                yield match.start(2), match.end(2), slug(plugin.secret_type)
    alone = _ALONE.match(line)
    if alone and is_random(entropy_plugins()[0], alone.group(1), line):
        yield alone.start(1), alone.end(1), slug(entropy_plugins()[0].secret_type)


def is_random(plugin: high_entropy_strings.HighEntropyStringsPlugin, value: str, line: str) -> bool:
    """Whether the entropy of `value`, in bits per character, is above the plugin's limit and nothing explains it."""
    if len(value) < LONG_RUN or len(set(value)) < 2**plugin.entropy_limit:  # entropy <= log2 of how many differ
        return False
    if plugin.calculate_shannon_entropy(value) <= plugin.entropy_limit:
        return False
    return not (
        heuristic.is_sequential_string(value)
        or heuristic.is_potential_uuid(value)
        or heuristic.is_likely_id_string(value, line, plugin)
    )


@cache
def entropy_plugins() -> tuple[high_entropy_strings.HighEntropyStringsPlugin, ...]:
    """Base64's and the hexadecimal one."""
    return high_entropy_strings.Base64HighEntropyString(), high_entropy_strings.HexHighEntropyString()


def private_keys(text: str) -> Iterator[Found]:
    """Of a text of many lines."""
    for pattern in private_key.PrivateKeyDetector.denylist:
        for match in pattern.finditer(text):
            yield match.start(), match.end(), slug(private_key.PrivateKeyDetector.secret_type)


@cache
def slug(secret_type: str) -> str:
    """How a kind is written in marks and metrics."""
    return re.sub(r"[^a-z0-9]+", "-", secret_type.lower()).strip("-")
