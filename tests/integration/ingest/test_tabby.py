"""Tabby's events, from the HTTP route to experience: the exact choice, its tokens, each outcome once."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from services.ingest.joiner import Joiner
from services.ingest.repository import Repository
from services.ingest.resolver import Resolver
from shared.contracts.experience import Reference
from shared.contracts.generation import Generation
from tests.factories import END_TOKEN, fim_prompt, make_generation, tabby_event
from tests.integration.ingest.conftest import HEADERS, Room, fresh_metrics

TABBY = "/v1/events/tabby"


def choices(count: int = 2, request_id: str = "cmpl-1") -> list[Generation]:
    return [make_generation(f"a + {n}", request_id=request_id, choice_index=n) for n in range(count)]


async def outcomes(room: Room) -> dict[tuple[str, str], str]:
    """State by generation and display."""
    query = "SELECT generation_id, split_part(client_completion_id, '/', 2), state FROM outcomes"
    rows: list[tuple[Any, ...]] = [tuple(row) for row in await room.rows(query)]
    return {(generation, view): state for generation, view, state in rows}


async def withheld(room: Room) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await room.rows("SELECT label, withheld FROM experience ORDER BY created_at, label")]


async def totals(room: Room) -> dict[str, Any]:
    stats = (await room.http.get("/v1/stats", headers=HEADERS)).json()["totals"]
    return {name: stats[name] for name in ("shown", "accepted", "rejected", "acceptance_rate")}


async def let_pass(room: Room, seconds: float) -> None:
    await room.work()
    room.clock.advance(seconds)
    await room.work()


async def test_a_select_trains_the_exact_choice_with_all_its_tokens(room: Room) -> None:
    first, second = choices()
    await room.generated(first, second)
    await room.send_tabby(first, "view")
    await room.send_tabby(second, "select")
    await room.work()
    (experience,) = await room.experience()
    assert (experience.generation_id, experience.label, experience.reward) == (second.generation_id, "accepted", 0.75)
    assert experience.shown.token_ids == second.token_ids
    assert experience.shown.credited_tokens == len(second.token_ids)
    assert experience.reference == Reference(kind="accepted", text="a + 1")
    assert [sibling.text for sibling in experience.siblings] == ["a + 0"]
    assert await outcomes(room) == {("cmpl-1", "view-1"): "shown", ("cmpl-1-1", "view-1"): "accepted"}
    assert await totals(room) == {"shown": 1, "accepted": 1, "rejected": 0, "acceptance_rate": 1}


async def test_a_dismiss_becomes_a_reject_after_the_window(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    await room.send_tabby(generation, "view")
    await room.send_tabby(generation, "dismiss")
    await let_pass(room, 19)
    assert await room.experience() == []
    await let_pass(room, 40)
    (experience,) = await room.experience()
    assert (experience.label, experience.reward, experience.shown_text) == ("rejected", -0.25, "a + 0")
    assert await room.rows("SELECT kind, source FROM feedback_events ORDER BY event_id") == [
        ("view", "tabby"),
        ("dismiss", "tabby"),
    ]


async def test_a_view_without_anything_after_it_is_shown_and_never_rejected(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    await room.send_tabby(generation, "view")
    await let_pass(room, 10_000)
    assert await room.experience() == []
    assert await outcomes(room) == {("cmpl-1", "view-1"): "shown"}
    assert await totals(room) == {"shown": 1, "accepted": 0, "rejected": 0, "acceptance_rate": 0}
    assert await room.value("SELECT count(*) FROM experience") == 0


@pytest.mark.parametrize("order", list(permutations(["view", "dismiss", "select"])))
async def test_a_dismiss_never_stands_against_a_select_of_the_same_view(room: Room, order: tuple[str, ...]) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    for event in order:
        await room.send_tabby(generation, event)
        await room.send_tabby(generation, event)
        await room.work()
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert experience.label == "accepted"
    assert await outcomes(room) == {("cmpl-1", "view-1"): "accepted"}
    assert await room.value("SELECT count(*) FROM feedback_events WHERE status = 'joined'") == 3
    assert room.metric("tabwise_ingest_events_repeated_total", source="tabby") == 3


@pytest.mark.parametrize("order", list(permutations([("view", 0), ("dismiss", 0), ("select", 1)])))
@pytest.mark.parametrize("at_once", [True, False])
async def test_choice_zero_is_not_rejected_by_the_view_in_which_another_was_accepted(
    room: Room, order: tuple[tuple[str, int], ...], at_once: bool
) -> None:
    both = choices()
    await room.generated(*both)
    for event, index in order:
        await room.send_tabby(both[index], event)
        if not at_once:
            await room.work()
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert (experience.generation_id, experience.label) == ("cmpl-1-1", "accepted")
    assert await outcomes(room) == {("cmpl-1", "view-1"): "shown", ("cmpl-1-1", "view-1"): "accepted"}
    assert await totals(room) == {"shown": 1, "accepted": 1, "rejected": 0, "acceptance_rate": 1}


async def test_outcomes_of_two_choices_in_two_displays_are_their_own(room: Room) -> None:
    first, second = choices()
    await room.generated(first, second)
    for generation, verdict, view in ((first, "dismiss", "v1"), (second, "select", "v2")):
        await room.send_tabby(generation, "view", view_id=view)
        await room.send_tabby(generation, verdict, view_id=view)
    await let_pass(room, 100)
    assert {e.generation_id: e.label for e in await room.experience()} == {"cmpl-1": "rejected", "cmpl-1-1": "accepted"}
    assert await totals(room) == {"shown": 2, "accepted": 1, "rejected": 1, "acceptance_rate": 0.5}


async def test_a_select_after_the_window_is_kept_and_not_trained_again(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    await room.send_tabby(generation, "dismiss")
    await let_pass(room, 100)
    await room.send_tabby(generation, "select")
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert experience.label == "rejected"
    assert await room.rows("SELECT state, reward FROM outcomes") == [("accepted", -0.25)]
    assert room.metric("tabwise_ingest_outcome_changes_total", change="too_late") == 1


async def test_a_line_accept_credits_the_first_line_after_the_window(room: Room) -> None:
    generation = make_generation("a + b\n    return c", tokens=["a", " + b", "\n    ", "return", " c"])
    await room.generated(generation)
    await room.send_tabby(generation, "view")
    await room.send_tabby(generation, "select", select_kind="line")
    await room.work()
    assert await room.experience() == []
    await let_pass(room, 21)
    (experience,) = await room.experience()
    assert (experience.label, experience.accepted_part, experience.shown_text) == ("accepted", "line", "a + b")
    assert (experience.shown.credited_tokens, experience.shown.text) == (2, generation.text)
    assert experience.reference == Reference(kind="accepted", text="a + b")


async def test_of_a_whole_line_the_end_is_not_credited_and_of_a_word_nothing_is_known_for_siblings(room: Room) -> None:
    line, word = (make_generation("a + b", prompt=fim_prompt(p)) for p in "xy")
    await room.generated(line, word)
    await room.send_tabby(line, "select", select_kind="line")
    await room.send_tabby(word, "select", select_kind="word")
    await let_pass(room, 21)
    of_line, of_word = await room.experience()
    assert line.token_ids[-1] == END_TOKEN
    assert of_line.shown.credited_tokens == len(line.token_ids) - 1
    assert (of_word.shown_text, of_word.shown.credited_tokens, of_word.reference) == ("a", 1, None)


@pytest.mark.parametrize("whole_first", [True, False])
async def test_a_whole_accept_wins_over_a_partial_one(room: Room, whole_first: bool) -> None:
    generation = make_generation("a + b\nc")
    await room.generated(generation)
    for kind in (None, "line") if whole_first else ("line", None):
        await room.send_tabby(generation, "select", select_kind=kind)
        await room.work()
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert (experience.accepted_part, experience.shown_text) == (None, "a + b\nc")
    assert experience.shown.credited_tokens == len(generation.token_ids)
    assert await room.rows("SELECT state, accepted_part FROM outcomes") == [("accepted", None)]


async def test_the_rest_after_a_line_is_another_display_and_trains_the_sample_once(room: Room) -> None:
    generation = make_generation("a + b\nc")
    await room.generated(generation)
    await room.send_tabby(generation, "select", select_kind="line", view_id="v1")
    await room.work()
    await room.send_tabby(generation, "select", view_id="v2")
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert (experience.accepted_part, experience.shown_text) == (None, "a + b\nc")
    assert await withheld(room) == [("accepted", None), ("accepted", "already_labelled")]
    assert await totals(room) == {"shown": 2, "accepted": 2, "rejected": 0, "acceptance_rate": 1}


async def test_of_several_displays_of_a_sample_the_accepted_one_is_trained(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    for view in ("v1", "v2", "v3"):  # the plugin dismisses and shows again at each keystroke
        await room.send_tabby(generation, "view", view_id=view)
        await room.send_tabby(generation, "dismiss" if view != "v3" else "select", view_id=view)
    await let_pass(room, 100)
    (experience,) = await room.experience()
    assert experience.label == "accepted"
    assert [reason for _, reason in await withheld(room)] == [None, "already_labelled", "already_labelled"]
    assert await totals(room) == {"shown": 3, "accepted": 1, "rejected": 2, "acceptance_rate": 1 / 3}


async def test_of_several_rejects_of_a_sample_the_last_display_is_trained(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    for view in ("v1", "v2"):
        await room.send_tabby(generation, "view", view_id=view)
        await room.send_tabby(generation, "dismiss", view_id=view)
    await let_pass(room, 100)
    assert len(await room.experience()) == 1
    assert sorted(await withheld(room), key=str) == [("rejected", "shown_again"), ("rejected", None)]
    trained = (
        "SELECT o.client_completion_id FROM experience e JOIN outcomes o USING (outcome_id) WHERE withheld IS NULL"
    )
    assert await room.value(trained) == "cmpl-1/v2"


async def test_a_reject_waits_for_an_accept_of_a_part_of_the_same_sample(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    await room.send_tabby(generation, "view", view_id="v1")
    await room.send_tabby(generation, "dismiss", view_id="v2")
    await let_pass(room, 45)
    await room.send_tabby(generation, "select", select_kind="line", view_id="v1")
    await let_pass(room, 10)
    assert await room.experience() == []  # the reject is due, but the accept beats it once it is final
    await let_pass(room, 20)
    assert [e.label for e in await room.experience()] == ["accepted"]
    assert await withheld(room) == [("accepted", None), ("rejected", "already_labelled")]


async def test_events_may_come_before_their_generation(room: Room) -> None:
    first, second = choices()
    await room.send_tabby(first, "view")
    await room.send_tabby(second, "select")
    await room.work()
    assert await room.rows("SELECT DISTINCT status FROM feedback_events") == [("pending",)]
    await room.generated(second)
    await let_pass(room, 1)
    assert [e.generation_id for e in await room.experience()] == ["cmpl-1-1"]
    await room.generated(first)
    await let_pass(room, 6)
    assert await outcomes(room) == {("cmpl-1", "view-1"): "shown", ("cmpl-1-1", "view-1"): "accepted"}


async def test_a_display_from_the_agents_cache_may_be_much_later(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    room.clock.advance(7200)
    await room.send_tabby(generation, "select")
    await room.work()
    assert len(await room.experience()) == 1


async def test_a_key_cannot_label_what_was_made_for_another(room: Room) -> None:
    foreign = make_generation(key_id="key-somebody")
    await room.generated(foreign)
    await room.send_tabby(foreign, "select")
    await room.send_tabby(make_generation(), "select")
    await room.send_tabby(choices(3)[2], "select")
    await let_pass(room, 61)
    assert await room.rows("SELECT DISTINCT status, status_reason FROM feedback_events") == [
        ("unmatched", "no_generation")
    ]
    assert await room.experience() == []


async def test_nothing_but_blanks_was_not_shown(room: Room) -> None:
    blank = make_generation(" \n")
    await room.generated(blank)
    await room.send_tabby(blank, "view")
    await room.work()
    assert await room.value("SELECT status_reason FROM feedback_events") == "nothing_shown"


async def test_the_prompt_tells_the_language_where_the_event_names_no_file(room: Room) -> None:
    generation = make_generation(prompt=fim_prompt("x", path="src/a.go"))
    await room.generated(generation)
    await room.send_tabby(generation, "select")
    await room.work()
    assert [e.language for e in await room.experience()] == ["go"]


async def test_two_joiners_and_resolvers_count_each_display_once(room: Room) -> None:
    requests = [choices(2, f"cmpl-{number}") for number in range(20)]
    await room.generated(*(generation for request in requests for generation in request))
    for first, second in requests:
        events = [(first, "view"), (first, "dismiss"), (second, "select"), (second, "select")]
        await asyncio.gather(*(room.send_tabby(generation, event) for generation, event in events))
    joiners = [room.joiner, Joiner(room.settings, room.sessions, room.streams, fresh_metrics(), room.clock)]
    resolvers = [room.resolver, Resolver(room.settings, room.sessions, fresh_metrics(), room.clock)]
    for _ in range(5):
        await asyncio.gather(*(joiner.step() for joiner in joiners))
        await asyncio.gather(*(resolver.step_accepted() for resolver in resolvers))
    await let_pass(room, 100)
    experience = await room.experience()
    assert [e.label for e in experience] == ["accepted"] * 20
    assert {e.generation_id for e in experience} == {f"cmpl-{number}-1" for number in range(20)}
    assert await totals(room) == {"shown": 20, "accepted": 20, "rejected": 0, "acceptance_rate": 1}


async def test_an_event_of_another_type_is_taken_and_counted(room: Room) -> None:
    answer = await room.http.post(TABBY, json={"type": "hover"}, headers=HEADERS)
    assert (answer.status_code, answer.content) == (204, b"")
    assert room.metric("tabwise_ingest_events_ignored_total", reason="other_event") == 1
    assert room.metric("tabwise_ingest_requests_total", route=TABBY, status="204") == 1


async def test_the_metrics_tell_what_was_said(room: Room) -> None:
    (generation,) = choices(1)
    for event, kind in (("view", None), ("select", "line"), ("select", None), ("dismiss", None)):
        await room.send_tabby(generation, event, select_kind=kind)
    for verdict in ("shown", "partially_accepted", "accepted", "rejected"):
        assert room.metric("tabwise_ingest_events_total", source="tabby", verdict=verdict) == 1


async def test_shown_alone_is_no_backlog(room: Room) -> None:
    (generation,) = choices(1)
    await room.generated(generation)
    await room.send_tabby(generation, "view")
    await room.work()
    async with room.sessions() as session:
        assert await Repository(session).backlog() == (0, 0, 0)


async def test_a_refused_event_leaves_nothing_behind(room: Room) -> None:
    for body in ({}, tabby_event(event="select", choice_index=-1), tabby_event(completion_id="../x")):
        answer = await room.http.post(TABBY, json=body, headers=HEADERS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_body")
    answer = await room.http.post(TABBY, json=tabby_event(event="select"), params={"select_kind": "x"}, headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "select_kind")
    assert await room.value("SELECT count(*) FROM feedback_events") == 0
