"""What of a generation is kept where it holds a secret. Pure.

Of such a generation the text stays, without the secret, so that events still join it and acceptance is still counted.
Its token ids would spell the secret out: they are not kept, and nothing
of it is trained on (`contains_secret`). Events are joined by the digest of the prompt as it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.ingest.secret_hints import hints
from services.ingest.secrets import Redacted, redact, redact_hinted
from shared import fim
from shared.contracts.generation import Generation

CONTAINS_SECRET = "contains_secret"


@dataclass(frozen=True, slots=True)
class Kept:
    """A generation as it may be stored."""

    generation: Generation
    kinds: tuple[str, ...] = ()
    """Of the secrets that were taken out."""


def without_secrets(generation: Generation, keep: bool = False) -> Kept:
    """The generation without the secrets of its prompt and text. `keep`: its project wants them stored."""
    if keep:
        return Kept(generation)
    prompt, place = generation.prompt, fim.parse(generation.prompt)
    before, after = (place.prefix, place.suffix) if place else (prompt, "")
    around = _around_cursor(generation.text, before, after)
    hinted = hints(f"{prompt}\n{around}")  # once, for all that follows: mostly there is nothing
    if not hinted:
        return Kept(generation)
    in_prompt = hinted.before(len(prompt))
    if len(in_prompt) == len(hinted):
        return _kept(generation, Redacted(generation.text), redact_hinted(prompt, in_prompt))
    text = redact(generation.text, before=before, after=after)
    line = _cursor_line(before, (after, generation.text + after))
    if not line.kinds:
        return _kept(generation, text, redact_hinted(prompt, in_prompt))
    return _kept(generation, text, redact(prompt.replace(_last_line(before), line.text)), line.kinds)


def _kept(generation: Generation, text: Redacted, prompt: Redacted, more: tuple[str, ...] = ()) -> Kept:
    kinds = tuple(sorted({*prompt.kinds, *more, *text.kinds}))
    if not kinds:
        return Kept(generation)
    emptied: dict[str, list[int]] = {"prompt_token_ids": [], "token_ids": [], "logprobs": [], "text_offsets": []}
    update = {"prompt": prompt.text, "text": text.text, "untrainable": CONTAINS_SECRET, **emptied}
    return Kept(generation.model_copy(update=update), kinds)


def _around_cursor(text: str, before: str, after: str) -> str:
    """Holds all places in which the generated text and the line up to the cursor may turn out to be secrets."""
    line, rest = _last_line(before), after.partition("\n")[0]
    return f"{line}{text}{rest}\n{line}{rest}"


def _cursor_line(before: str, afters: tuple[str, ...]) -> Redacted:
    """The line up to the cursor, where it holds a secret or the beginning of one that goes on behind it."""
    line = _last_line(before)
    found = (redact(line, after=after) for after in afters)
    return next((one for one in found if one.kinds), Redacted(line))


def _last_line(text: str) -> str:
    return text[text.rfind("\n") + 1 :]
