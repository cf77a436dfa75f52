"""Which version each chunk names, without vLLM: its results and chunks are played."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from services.engine.stamp import ChunkStamper, clip


@dataclass
class Output:
    """Like vLLM's `CompletionOutput`: new tokens, and spans over all tokens so far."""

    index: int
    token_ids: list[int]
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def weight_versions(self) -> list[Any]:
        return [SimpleNamespace(version=v, start=s, end=e) for v, s, e in self.spans]


def chunk(index: int) -> str:
    return f'data: {{"id":"cmpl-1","model":"x\\"index\\":9","choices":[{{"index":{index},"text":"é"}}]}}\n\n'


USAGE = 'data: {"id":"cmpl-1","choices":[],"usage":{}}\n\n'
DONE = "data: [DONE]\n\n"
ERROR = 'data: {"error":{"message":"no"}}\n\n'


async def play(results: list[list[Output]], choices: int = 1, tail: tuple[str, ...] = (USAGE, DONE)) -> list[str]:
    """What vLLM does: one chunk per output, in order, then the rest."""
    stamper = ChunkStamper(choices)

    async def source() -> AsyncGenerator[tuple[int, Any], None]:
        for outputs in results:
            yield 0, SimpleNamespace(outputs=outputs)

    events = []
    async for _, result in stamper.watch(source()):
        events += [stamper.stamp(chunk(output.index)) for output in result.outputs]
    return events + [stamper.stamp(event) for event in tail]


def stamps(events: list[str]) -> list[Any]:
    bodies = [json.loads(event[6:]) for event in events if event.startswith("data: {")]
    return [(body.get("weight_version"), body.get("weight_versions")) for body in bodies]


async def test_every_chunk_names_its_version() -> None:
    events = await play([[Output(0, [1], [("default", 0, 1)])], [Output(0, [2, 3], [("default", 0, 3)])]])
    assert stamps(events) == [("default", None)] * 3
    assert events[-1] == DONE
    assert events[0] == 'data: {"weight_version":"default",' + chunk(0)[7:]


async def test_a_version_that_changes_between_chunks() -> None:
    first, second = [("17", 0, 2)], [("17", 0, 2), ("18", 2, 3)]
    events = await play([[Output(0, [1, 2], first)], [Output(0, [3], second)]])
    assert stamps(events) == [("17", None), ("18", None), ("18", None)]


async def test_a_version_that_changes_inside_a_merged_chunk() -> None:
    spans = [("17", 0, 3), ("18", 3, 5)]
    events = await play([[Output(0, [1, 2], [("17", 0, 2)])], [Output(0, [3, 4, 5], spans)]])
    assert stamps(events) == [("17", None), ("17", [["17", 2, 3], ["18", 3, 5]]), ("18", None)]


async def test_choices_have_their_own_versions() -> None:
    results = [
        [Output(0, [1], [("17", 0, 1)]), Output(1, [1], [("17", 0, 1)])],
        [Output(1, [2], [("17", 0, 1), ("18", 1, 2)])],
        [Output(0, [], [("17", 0, 1)])],
    ]
    events = await play(results, choices=2, tail=())
    assert stamps(events) == [("17", None), ("17", None), ("18", None), ("17", None)]


async def test_a_chunk_without_tokens_repeats_the_last() -> None:
    events = await play([[Output(0, [1], [("17", 0, 1)])], [Output(0, [], [("17", 0, 1)])]], tail=())
    assert stamps(events) == [("17", None), ("17", None)]


async def test_what_has_no_version_gets_none() -> None:
    events = await play([[Output(0, [])]], tail=(USAGE, ERROR, DONE))
    assert events == [chunk(0), USAGE, ERROR, DONE]


async def test_errors_are_left_as_they_are() -> None:
    events = await play([[Output(0, [1], [("17", 0, 1)])]], tail=(ERROR, DONE))
    assert events[1:] == [ERROR, DONE]


async def test_a_label_is_escaped() -> None:
    events = await play([[Output(0, [1], [('1"8', 0, 1)])]], tail=())
    assert stamps(events) == [('1"8', None)]


async def test_the_source_is_closed_with_the_watch() -> None:
    closed = []

    async def source() -> AsyncGenerator[tuple[int, Any], None]:
        try:
            while True:
                yield 0, SimpleNamespace(outputs=[])
        finally:
            closed.append(True)

    watched = ChunkStamper(1).watch(source())
    await anext(aiter(watched))
    await watched.aclose()  # type: ignore[attr-defined]
    assert closed


def test_clip() -> None:
    assert clip([("a", 0, 3), ("b", 3, 9)], 2, 4) == [("a", 2, 3), ("b", 3, 4)]
    assert clip([("a", 0, 3)], 3, 3) == []
