"""The reward `llm_judge`: a language model grades each completion from 0 to 10, mapped to 0 to 1.

As RLinf validates its code completion. Any OpenAI-compatible endpoint: vLLM in your own network, for one.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog
from pydantic import Field, field_validator

from services.trainer.warmstart.rewards.judge_client import (
    Endpoint,
    ExternalHost,
    JudgeRefused,
    JudgeUnavailable,
    is_private,
)
from services.trainer.warmstart.rewards.judge_prompt import RUBRIC, messages, read_score
from services.trainer.warmstart.rewards.options import Options
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.rewards.together import together

log = structlog.get_logger()


class JudgeOptions(Options):
    """Of `llm_judge`."""

    base_url: str
    """Up to and with `/v1`."""
    model: str = Field(min_length=1)
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; never the key itself."""
    allow_external: bool = False
    """True: send code to a host outside of private networks."""
    rubric: str = Field(default=RUBRIC, min_length=1)
    show_reference: bool = True
    chars_before: int = Field(default=4000, ge=0)
    chars_after: int = Field(default=1000, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    """Of the answer; more for a model that thinks first."""
    temperature: float = Field(default=0.0, ge=0)
    timeout_s: float = Field(default=60.0, gt=0)
    """Of one attempt."""
    retries: int = Field(default=4, ge=0, le=20)
    backoff_s: float = Field(default=0.5, ge=0)
    """Before the first retry; doubled for each one more."""
    concurrency: int = Field(default=8, ge=1, le=1024)

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be like http://judge.internal:8000/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError("must hold no user, password or query; put the key in a variable named in api_key_env")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _is_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
            raise ValueError("must be the name of an environment variable, not a key")
        return value


Grade = float | JudgeUnavailable | None


class Judge:
    """0 to 1; None where the answer was no grade. Stops with an error where no question was answered at all."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises `ValueError`."""
        self._options = JudgeOptions.model_validate(options)
        self._key = _key(self._options.api_key_env)
        _check_host(self._options)
        self.counts: Counter[str] = Counter(scored=0, unparsable=0, refused=0, unanswered=0)
        """Questions so far, by what became of them."""

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """See `Reward`. Equal completions of one place are asked about once."""
        options = self._options
        endpoint = Endpoint(
            options.base_url,
            self._key,
            timeout_s=options.timeout_s,
            retries=options.retries,
            backoff_s=options.backoff_s,
            external=options.allow_external,
        )
        questions = list(dict.fromkeys(candidates))
        async with endpoint:
            answers = await together((self._grade(endpoint, question) for question in questions), options.concurrency)
        self._look(answers)
        grades = dict(zip(questions, answers, strict=True))
        return [None if isinstance(grade := grades[c], JudgeUnavailable) else grade for c in candidates]

    async def _grade(self, endpoint: Endpoint, candidate: Candidate) -> Grade:
        token = secrets.token_hex(6)
        try:
            answer = await endpoint.ask(self._body(candidate, token))
        except JudgeUnavailable as error:
            self.counts["unanswered"] += 1
            return error
        except JudgeRefused:
            self.counts["refused"] += 1
            return None
        score = read_score(answer, token)
        self.counts["unparsable" if score is None else "scored"] += 1
        return score

    def _body(self, candidate: Candidate, token: str) -> dict[str, Any]:
        options = self._options
        asked = messages(
            candidate,
            token,
            rubric=options.rubric,
            reference=options.show_reference,
            before=options.chars_before,
            after=options.chars_after,
        )
        return {
            "model": options.model,
            "messages": asked,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
        }

    def _look(self, answers: Sequence[Grade]) -> None:
        """A judge that is gone would change what is trained for: that is the operator's to decide."""
        away = [answer for answer in answers if isinstance(answer, JudgeUnavailable)]
        if away and len(away) == len(answers):
            raise away[0]
        unknown = sum(not isinstance(answer, float) for answer in answers)
        if unknown:
            log.warning("judge gave no grade", questions=len(answers), unknown=unknown, **self.counts)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ValueError(f"api_key_env: the environment variable {variable} is not set")
    return key


def _check_host(options: JudgeOptions) -> None:
    """An address can be judged at once; a name is looked at with every connection."""
    host = urlsplit(options.base_url).hostname or ""
    try:
        private = options.allow_external or is_private(host)
    except ValueError:
        return
    if not private:
        raise ExternalHost(host)
