from __future__ import annotations

import math

import pytest

from services.gateway.chunks import parse_chunk
from services.gateway.errors import EngineFailed


def test_a_bare_nan_can_be_read() -> None:
    payload = b'{"choices": [{"index": 0, "text": "", "logprobs": {"token_logprobs": [NaN]}}]}'

    (delta,) = parse_chunk(payload)

    assert delta.logprobs[0] is not None
    assert math.isnan(delta.logprobs[0])


def test_a_usage_chunk_has_no_delta() -> None:
    assert parse_chunk(b'{"choices": [], "usage": {"prompt_tokens": 1}}') == []


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"3", b"{}", b'{"choices": 3}', b'{"choices": [3]}', b'{"choices": [{"index": 0}]}']
)
def test_nonsense_is_a_failure(payload: bytes) -> None:
    with pytest.raises(EngineFailed, match="garbage"):
        parse_chunk(payload)


def test_the_engines_own_error_is_a_failure() -> None:
    with pytest.raises(EngineFailed, match="engine_error"):
        parse_chunk(b'{"error": {"message": "EngineCore died", "code": 500}}')
