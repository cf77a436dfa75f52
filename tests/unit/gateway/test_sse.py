from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway import sse
from services.gateway.errors import EngineFailed
from services.gateway.sse import SseDecoder

STREAM = 'data: {"a": "é🙂"}\n\n: keep-alive\n\nevent: x\r\ndata:{"b"\r\ndata: : 1}\r\n\r\ndata: [DONE]\n\n'.encode()
EVENTS = ['{"a": "é🙂"}'.encode(), b'{"b"\n: 1}', b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_do_not_depend_on_how_the_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    decoder = SseDecoder()

    events = [event for a, b in itertools.pairwise(edges) for event in decoder.feed(STREAM[a:b])]

    assert events == EVENTS


def test_an_event_without_its_empty_line_is_not_given_out() -> None:
    assert SseDecoder().feed(b'data: {"half": 1}\n') == []


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)

    with pytest.raises(EngineFailed, match="garbage"):
        SseDecoder().feed(b"x" * 101)
