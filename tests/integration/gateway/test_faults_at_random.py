"""Random faults on three replicas: whatever happens to two of them, the third one's users notice nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.engine import FakeEngine, Faults
from tests.integration.gateway.support import chunks, serving, text_of

REPLY = "abcdef"
REQUESTS = 3
BEFORE = st.one_of(
    st.builds(Faults, status=st.sampled_from([429, 500, 502, 503])),
    st.sampled_from(
        [
            Faults(reset_before_headers=True),
            Faults(reset_if_reused=True),
            Faults(garbage_before_headers=True),
            Faults(stall_before_headers=True),
            Faults(reset_after=0),
            Faults(stall_after=0),
            Faults(garbage_after=0),
            Faults(half_chunk_after=0),
            Faults(error_after=0),
            Faults(end_after=0),
        ]
    ),
)
AFTER = st.builds(
    lambda name, count: Faults(**{name: count}),
    st.sampled_from(["reset_after", "stall_after", "garbage_after", "half_chunk_after", "error_after", "end_after"]),
    st.integers(1, len(REPLY) - 1),
)
WELL = st.builds(Faults)
SCRIPTS = st.lists(st.lists(st.one_of(WELL, BEFORE), max_size=2 * REQUESTS), min_size=2, max_size=2)
LATE_SCRIPTS = st.lists(st.lists(st.one_of(WELL, BEFORE, AFTER), max_size=2 * REQUESTS), min_size=2, max_size=2)
FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


async def outcomes(scripts: list[list[Faults]], stream: bool) -> tuple[list[str], int, int]:
    """The bodies of REQUESTS completions, what was recorded, and what is still in flight."""
    with FakeEngine(reply=REPLY) as one, FakeEngine(reply=REPLY) as two, FakeEngine(reply=REPLY) as well:
        one.script.extend(scripts[0])
        two.script.extend(scripts[1])
        quick: dict[str, Any] = {"engine_try_timeout_s": 0.15, "engine_gap_timeout_s": 0.15}
        async with serving(one.url, two.url, well.url, **quick) as gateway:
            asked = [gateway.complete(prompt=f"# file {index}", stream=stream) for index in range(REQUESTS)]
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200] * REQUESTS
            recorded = await gateway.generations(REQUESTS)
            in_flight = await gateway.metric("completions_in_flight")
            texts = {generation.text for generation in recorded}
            assert all(REPLY.startswith(text) for text in texts)
            return [answer.text for answer in answers], len(recorded), int(in_flight or 0)


@FEW
@given(SCRIPTS)
def test_streamed_nothing_is_lost_before_the_first_byte(scripts: list[list[Faults]]) -> None:
    bodies, recorded, in_flight = asyncio.run(outcomes(scripts, stream=True))

    assert [text_of(body) for body in bodies] == [REPLY] * REQUESTS
    assert all(body.endswith("data: [DONE]\n\n") for body in bodies)
    assert (recorded, in_flight) == (REQUESTS, 0)


@FEW
@given(LATE_SCRIPTS)
def test_whole_answers_are_never_lost(scripts: list[list[Faults]]) -> None:
    bodies, recorded, in_flight = asyncio.run(outcomes(scripts, stream=False))

    assert [json.loads(body)["choices"][0]["text"] for body in bodies] == [REPLY] * REQUESTS
    assert (recorded, in_flight) == (REQUESTS, 0)


@FEW
@given(LATE_SCRIPTS)
def test_a_stream_is_whole_or_says_that_it_is_not(scripts: list[list[Faults]]) -> None:
    bodies, recorded, in_flight = asyncio.run(outcomes(scripts, stream=True))

    for body in bodies:
        *parts, last = chunks(body)
        shown = "".join(choice["text"] for part in [*parts, last] for choice in part.get("choices", []))
        assert REPLY.startswith(shown)
        assert ("error" in last) == (shown != REPLY or not body.endswith("data: [DONE]\n\n"))
    assert (recorded, in_flight) == (REQUESTS, 0)
