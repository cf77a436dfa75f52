"""Where in a text a secret may be, by plain searches that never pass over one. Pure.

In: text. Out: positions; a line without one holds nothing that `services.ingest.secret_patterns` finds. Every match of
a pattern has one of the words below in it, or a run of `LONG_RUN` token characters: tests hold each pattern to that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WORDS = ("key", "pass", "pwd", "token", "secret", "contrase")
"""Each keyword of the detector contains one of these, and so does the head of each private key."""
SENTINELS = ("://", "xox")
"""Of what may be a secret without a long run of its characters: each match has one of them in it, or of the next."""
CASED = {"J": ("eyj",), "K": ("akc",), "P": ("artif", "jfrog", "buildkit")}
"""The same, of what has this capital letter in it. They are rare in code, and one character is found at once."""
PRIVATE_KEYS = ("PRIVATE KEY", "PuTTY")
LONG_RUN = 20
"""Every other token, and every string that looks drawn at random, has as many of its characters in a row."""
TOKEN_RUN = 23
"""Or as many (of fewer no string of base64 has 4.5 bits of entropy), but for keys of AWS and hexadecimal strings."""
AWS = ("a3t", "abia", "acca", "akia", "asia")

_RUN = b"a" * LONG_RUN
_TOKEN_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789+/_-=\\")
_TO_RUNS = bytes(ord("a") if char in _TOKEN_CHARS else ord(" ") for char in range(256))
_HEX = dict.fromkeys(map(ord, "0123456789abcdef"))
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LIKE_ASCII = {"\u017f": "s", "\u212a": "k", "\u0130": "i", "\u0131": "i"}
"""What `re.IGNORECASE` takes for a letter of ASCII, as the documentation of `re` has it."""


@dataclass(slots=True)
class Hints:
    """Positions in a text."""

    keywords: list[int]
    """Where names like `password` may be."""
    tokens: list[int]
    """Where something may be a secret by its own shape."""
    private_key: bool
    """Whether one may be anywhere."""

    def __len__(self) -> int:
        return len(self.keywords) + len(self.tokens)

    def before(self, end: int) -> Hints:
        """Those of a text's first `end` characters."""
        keywords, tokens = ([at for at in found if at < end] for found in (self.keywords, self.tokens))
        return Hints(keywords, tokens, self.private_key)


def hints(text: str) -> Hints:
    """Where a detector may find something; nowhere else does any."""
    small = folded(text)
    keywords, tokens = _positions(small, WORDS), _positions(small, SENTINELS)
    for capital, words in CASED.items():
        if capital in text:
            tokens += _positions(small, words)
    tokens += _runs(small)
    return Hints(keywords, tokens, bool(keywords) and any(word in text for word in PRIVATE_KEYS))


def folded(text: str) -> str:
    """In small letters of ASCII, as long as before: what a pattern may take for such a character is one, else `?`."""
    if text.isascii():
        return text.lower()
    return _NOT_ASCII.sub(lambda found: "".join(map(_fold, found.group())), text).lower()


def _fold(character: str) -> str:
    return "0" if character.isdecimal() else _LIKE_ASCII.get(character, "?")


def _positions(text: str, words: tuple[str, ...]) -> list[int]:
    found: list[int] = []
    for word in words:
        at = text.find(word)
        while at >= 0:
            found.append(at)
            at = text.find(word, at + 1)
    return found


def _runs(folded_text: str) -> list[int]:
    """Where long runs of a token's characters begin that may be more than a name."""
    found, runs = [], folded_text.encode().translate(_TO_RUNS)
    at = runs.find(_RUN)
    while at >= 0:
        end = runs.find(b" ", at)
        end = len(runs) if end < 0 else end
        if end - at >= TOKEN_RUN or _may_be_secret(folded_text[at:end]):
            found.append(at)
        at = runs.find(_RUN, end)
    return found


def _may_be_secret(run: str) -> bool:
    """Of a run that is shorter than all other tokens."""
    is_hex = len(run.translate(_HEX)) <= TOKEN_RUN - LONG_RUN
    return is_hex or any(word in run for word in AWS)
