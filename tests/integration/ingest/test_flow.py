"""From an event to experience: joins, outcomes, rewards, each once."""

from __future__ import annotations

import asyncio

from services.ingest.joiner import Joiner
from services.ingest.resolver import Resolver
from shared import fim
from shared.contracts.experience import Reference
from shared.streams import RedisStreams
from tests.factories import KEY_ID, fim_prompt, make_generation, rlinf_event
from tests.integration.ingest.conftest import HEADERS, Room, fresh_metrics

FILE = "import math\n\n\nclass Circle:\n    def __init__(self, radius):\n        self.radius = radius\n\n"
PLACE = FILE + "    def area(self):\n        return "


async def test_an_accept_becomes_experience_at_once(room: Room) -> None:
    generation = make_generation("a + b", policy_version=3)
    await room.generated(generation)
    await room.send_continue(generation)
    await room.work()
    (experience,) = await room.experience()
    assert experience.generation_id == generation.generation_id
    assert (experience.label, experience.reward) == ("accepted", 0.75)
    assert experience.shown.token_ids == generation.token_ids
    assert experience.shown.logprobs == generation.logprobs
    assert experience.shown.credited_tokens == len(generation.token_ids)
    assert experience.prompt_token_ids == generation.prompt_token_ids
    assert experience.sampling == generation.sampling
    assert (experience.shown.policy_version, experience.language) == (3, "python")
    assert await room.value("SELECT count(*) FROM outbox WHERE sent_at IS NULL") == 0
    assert room.metric("tabwise_ingest_displays_total", label="accepted", policy_version="3", project="default") == 1


async def test_a_reject_waits_for_a_late_accept_and_for_settled_text(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation, accepted=False)
    await room.work()
    room.clock.advance(19)
    await room.work()
    assert await room.experience() == []
    room.clock.advance(2)
    await room.work()
    assert await room.experience() == []  # final, but what was typed instead may still be seen
    room.clock.advance(30)
    await room.work()
    (experience,) = await room.experience()
    assert (experience.label, experience.reward, experience.reference) == ("rejected", -0.25, None)
    assert room.metric("tabwise_ingest_settled_total", found="no") == 1


async def test_a_late_accept_overrules_the_timers_reject(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    completion = await room.send_continue(generation, accepted=False)
    await room.work()
    room.clock.advance(10)
    await room.send_continue(generation, accepted=True, completionId=completion)
    await room.work()
    room.clock.advance(100)
    await room.work()
    (experience,) = await room.experience()
    assert experience.label == "accepted"
    assert await room.value("SELECT count(*) FROM outcomes") == 1
    assert await room.value("SELECT count(*) FROM feedback_events WHERE status = 'joined'") == 2
    assert room.metric("tabwise_ingest_outcome_changes_total", change="overruled") == 1


async def test_both_events_in_one_batch_in_either_order(room: Room) -> None:
    for first in (True, False):
        generation = make_generation(prompt=fim_prompt(f"{first} = "))
        await room.generated(generation)
        completion = await room.send_continue(generation, accepted=first)
        await room.send_continue(generation, accepted=not first, completionId=completion)
    await room.work()
    room.clock.advance(100)
    await room.work()
    assert [experience.label for experience in await room.experience()] == ["accepted", "accepted"]
    assert await room.value("SELECT count(*) FROM outcomes") == 2


async def test_an_accept_after_the_resolution_is_kept_and_not_trained_again(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    completion = await room.send_continue(generation, accepted=False)
    await room.work()
    room.clock.advance(100)
    await room.work()
    await room.send_continue(generation, accepted=True, completionId=completion)
    await room.work()
    (experience,) = await room.experience()
    assert experience.label == "rejected"
    assert tuple((await room.rows("SELECT state, reward FROM outcomes"))[0]) == ("accepted", -0.25)
    assert room.metric("tabwise_ingest_outcome_changes_total", change="too_late") == 1


async def test_the_same_event_counts_once_however_often_it_is_sent(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    same = {"completionId": "c1", "accepted": True}
    await asyncio.gather(*(room.submit(generation, **same) for _ in range(20)))
    await room.send_continue(generation, **same)
    await room.work()
    await room.submit(generation, **same)
    await room.work()
    assert await room.value("SELECT count(*) FROM feedback_events") == 1
    assert len(await room.experience()) == 1
    assert room.metric("tabwise_ingest_events_total", source="rlinf", verdict="accepted") == 1
    assert room.metric("tabwise_ingest_events_repeated_total", source="rlinf") == 20


async def test_two_joiners_and_resolvers_make_each_experience_once(room: Room) -> None:
    generations = [make_generation(prompt=fim_prompt(f"x{number} = ")) for number in range(30)]
    await room.generated(*generations)
    for generation in generations:
        completion = await room.submit(generation, accepted=False)
        await room.submit(generation, accepted=True, completionId=completion)
    joiners = [room.joiner, Joiner(room.settings, room.sessions, room.streams, fresh_metrics(), room.clock)]
    resolvers = [room.resolver, Resolver(room.settings, room.sessions, fresh_metrics(), room.clock)]
    for _ in range(5):
        await asyncio.gather(*(joiner.step() for joiner in joiners))
        await asyncio.gather(*(resolver.step_accepted() for resolver in resolvers))
    await room.work()
    experience = await room.experience()
    assert len(experience) == len({e.generation_id for e in experience}) == 30


async def test_an_event_may_come_before_its_generation(room: Room) -> None:
    generation = make_generation()
    await room.submit(generation)
    await room.work()
    assert await room.value("SELECT status FROM feedback_events") == "pending"
    await room.generated(generation)
    room.clock.advance(1)
    await room.work()
    assert len(await room.experience()) == 1


async def test_an_event_without_a_generation_is_unmatched_after_the_grace(room: Room) -> None:
    await room.generated(make_generation("a + b"))
    await room.submit(make_generation("something else"))
    await room.submit(make_generation(prompt=fim_prompt("never asked ")))
    await room.submit(make_generation(), completion="  ")
    await room.work()
    room.clock.advance(61)
    await room.work()
    reasons = await room.rows("SELECT status, status_reason FROM feedback_events ORDER BY event_id")
    assert [tuple(row) for row in reasons] == [
        ("unmatched", "text_differs"),
        ("unmatched", "no_generation"),
        ("unmatched", "nothing_shown"),
    ]
    assert room.metric("tabwise_ingest_joins_total", result="unmatched", reason="no_generation") == 1


async def test_an_event_outlasts_the_grace_while_the_recorder_lags_behind(room: Room) -> None:
    generation = make_generation()
    await room.submit(generation)
    await room.emit(generation)
    room.clock.advance(120)
    await room.work()
    assert await room.value("SELECT status FROM feedback_events") == "pending"
    await room.recorder.step()
    room.clock.advance(6)
    await room.work()
    assert len(await room.experience()) == 1


async def test_an_event_outlasts_the_grace_while_redis_is_away_and_right_after(room: Room) -> None:
    generation = make_generation()
    await room.submit(generation)
    away = RedisStreams.from_url("redis://127.0.0.1:1/0")
    joiner = Joiner(room.settings, room.sessions, away, room.metrics, room.clock)
    room.clock.advance(120)
    await joiner.step()
    joiner._streams = room.streams
    room.clock.advance(6)
    await joiner.step()
    assert await room.value("SELECT status FROM feedback_events") == "pending"
    await room.generated(generation)  # the gateway had kept it
    room.clock.advance(6)
    await joiner.step()
    assert await room.value("SELECT status FROM feedback_events") == "joined"
    await away.close()


async def test_another_key_cannot_label_what_was_made_for_this_one(room: Room) -> None:
    await room.generated(make_generation("a + b"), make_generation("c", key_id="key-somebody"))
    for text in ("a + b", "c"):
        body = rlinf_event(make_generation(text))
        answer = await room.http.post("/api/training/submit", json=body, headers={"Authorization": "Bearer second-key"})
        assert answer.status_code == 200
    await room.work()
    room.clock.advance(61)
    await room.work()
    assert await room.value("SELECT count(*) FROM feedback_events WHERE status = 'unmatched'") == 2
    assert await room.experience() == []


async def test_an_old_generation_is_not_what_an_event_speaks_of(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    room.clock.advance(601)
    await room.submit(generation)
    await room.work()
    assert await room.value("SELECT status FROM feedback_events") == "pending"


async def test_an_undecidable_join_is_ambiguous_and_trains_nothing(room: Room) -> None:
    await room.generated(make_generation("foobar", tokens=["foobar"]), make_generation("foobar", tokens=["foo", "bar"]))
    await room.submit(make_generation("foobar"))
    await room.work()
    assert await room.value("SELECT status FROM feedback_events") == "ambiguous"
    assert await room.experience() == []


async def test_displays_of_equal_texts_go_to_different_generations(room: Room) -> None:
    twins = [make_generation(), make_generation()]
    await room.generated(*twins)
    for twin in twins:
        await room.submit(twin)
        await room.work()
    assert {e.generation_id for e in await room.experience()} == {twin.generation_id for twin in twins}


async def test_the_same_sample_displayed_again_is_not_trained_twice(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation, accepted=False)
    await room.work()
    await room.submit(generation, accepted=True, cacheHit=True)
    room.clock.advance(100)
    await room.work()
    (experience,) = await room.experience()
    assert experience.label == "accepted"
    withheld = await room.rows("SELECT label, withheld FROM experience ORDER BY withheld NULLS FIRST")
    assert [tuple(row) for row in withheld] == [("accepted", None), ("rejected", "already_labelled")]


async def test_only_displayed_tokens_are_credited(room: Room) -> None:
    generation = make_generation("a + b\n\ndef other", finish_reason="length")
    await room.generated(generation)
    await room.submit(generation, completion="a + b")
    await room.work()
    (experience,) = await room.experience()
    assert (experience.shown_text, experience.shown.text) == ("a + b", generation.text)
    assert experience.shown.credited_tokens == 4  # "a", " ", "+", " b"


async def test_typing_ahead_joins_the_request_that_was_reused(room: Room) -> None:
    generation = make_generation("total + other", prompt=fim_prompt("return "))
    await room.generated(generation)
    await room.send_continue(generation, completion="other", prompt=fim_prompt("return total + "))
    await room.work()
    (experience,) = await room.experience()
    assert experience.shown_text == "total + other"
    assert experience.reference == Reference(kind="accepted", text="total + other")


async def test_prefix_and_suffix_join_where_the_gateway_wrote_the_prompt(room: Room) -> None:
    """Continue's FIM providers send prefix and suffix; their events have a prompt of the client's own template."""
    on_the_wire = {"prefix": "def add(a, b):\n    return ", "suffix": "\n"}
    generation = make_generation("a + b", prompt=fim.render("qwen", on_the_wire["prefix"], on_the_wire["suffix"]))
    other = make_generation("a + b", prompt=fim_prompt("other "))
    await room.generated(generation, other)
    await room.send_continue(generation, prompt="[SUFFIX]\n[PREFIX]def add(a, b):\n    return ", **on_the_wire)
    await room.submit(generation, prompt="trimmed by the gateway", prefix="…add(a, b):\n    return ", suffix="\n")
    await room.work()
    assert [e.generation_id for e in await room.experience()] == [generation.generation_id]
    room.clock.advance(61)
    await room.work()
    assert await room.value("SELECT status_reason FROM feedback_events WHERE source = 'rlinf'") == "no_generation"
    stored = await room.value("SELECT string_agg(e::text, ' ') FROM feedback_events e")
    assert "def add" not in stored
    assert "[PREFIX]" not in stored


async def test_typing_ahead_joins_where_the_gateway_wrote_the_prompt(room: Room) -> None:
    generation = make_generation("total + other", prompt=fim.render("qwen", "return ", "\n"))
    await room.generated(generation)
    typed = {"prompt": "<PRE> return total +  <SUF>\n <MID>", "prefix": "return total + ", "suffix": "\n"}
    await room.send_continue(generation, completion="other", **typed)
    await room.work()
    assert [e.shown_text for e in await room.experience()] == ["total + other"]


async def test_settled_text_is_the_reference_of_a_reject(room: Room) -> None:
    shown = make_generation("self.x", prompt=fim_prompt(PLACE, "\n"))
    await room.generated(shown)
    await room.submit(shown, accepted=False)
    await room.work()
    room.clock.advance(21)
    await room.work()
    assert await room.experience() == []
    await room.generated(make_generation("x", prompt=fim_prompt(PLACE + "math.pi\n\n    def ", "\n")))
    await room.work()
    (experience,) = await room.experience()
    assert experience.reference == Reference(kind="settled", text="math.pi")
    assert experience.reward == -0.25
    assert room.metric("tabwise_ingest_settled_total", found="yes") == 1
    assert await room.value("SELECT reference_text FROM outcomes") == "math.pi"


async def test_settled_text_of_another_key_or_of_before_is_not_looked_at(room: Room) -> None:
    finished = fim_prompt(PLACE + "math.pi\n\n    def ", "\n")
    await room.generated(make_generation("x", prompt=finished))
    shown = make_generation("self.x", prompt=fim_prompt(PLACE, "\n"))
    await room.generated(shown, make_generation("x", prompt=finished, key_id="key-other"))
    await room.submit(shown, accepted=False)
    await room.work()
    room.clock.advance(60)
    await room.work()
    (experience,) = await room.experience()
    assert experience.reference is None


async def test_a_reject_that_was_then_typed_by_hand_is_withheld(room: Room) -> None:
    shown = make_generation("math.pi", prompt=fim_prompt(PLACE, "\n"))
    await room.generated(shown, make_generation("x", prompt=fim_prompt(PLACE + "math.pi\n\n    def ", "\n")))
    await room.submit(shown, accepted=False)
    await room.work()
    room.clock.advance(60)
    await room.work()
    assert await room.experience() == []
    assert await room.value("SELECT withheld FROM experience") == "typed_out"
    assert await room.value("SELECT reference_text FROM outcomes") == "math.pi"


async def test_an_untrainable_generation_is_counted_and_not_trained(room: Room) -> None:
    generation = make_generation(untrainable="bad_logprobs")
    await room.generated(generation)
    await room.submit(generation)
    await room.work()
    assert await room.experience() == []
    assert room.metric("tabwise_ingest_experience_withheld_total", reason="bad_logprobs") == 1


async def test_other_choices_of_the_request_are_siblings(room: Room) -> None:
    choices = [make_generation(f"a + {n}", request_id="cmpl-1", choice_index=n) for n in range(3)]
    await room.generated(*choices, make_generation("a + 9"))
    await room.submit(choices[0])
    await room.work()
    (experience,) = await room.experience()
    assert [sibling.text for sibling in experience.siblings] == ["a + 1", "a + 2"]


async def test_two_choices_with_a_verdict_each_count_once_and_are_nobodys_siblings(room: Room) -> None:
    """However alike they are: what the developer said about the second is not what its likeness to the first says."""
    texts = ("a + b", "b + a", "a - b")
    choices = [make_generation(text, request_id="cmpl-1", choice_index=n) for n, text in enumerate(texts)]
    await room.generated(*choices)
    await room.submit(choices[0])
    await room.submit(choices[1], accepted=False)
    await room.work()
    room.clock.advance(60)
    await room.work()
    first, second = await room.experience()
    assert [(one.generation_id, one.label) for one in (first, second)] == [
        ("cmpl-1", "accepted"),
        ("cmpl-1-1", "rejected"),
    ]
    assert [[sibling.text for sibling in one.siblings] for one in (first, second)] == [["a - b"], ["a - b"]]


async def test_a_choice_that_has_counted_as_a_sibling_is_not_trained_on_again(room: Room) -> None:
    texts = ("a + b", "b + a", "a - b")
    choices = [make_generation(text, request_id="cmpl-1", choice_index=n) for n, text in enumerate(texts)]
    await room.generated(*choices)
    await room.submit(choices[0])
    await room.work()
    await room.submit(choices[1])
    await room.work()
    (first,) = await room.experience()
    assert [sibling.text for sibling in first.siblings] == ["b + a", "a - b"]
    assert room.metric("tabwise_ingest_experience_withheld_total", reason="counted_as_sibling") == 1


async def test_a_sibling_of_which_nothing_was_known_still_counts_when_its_verdict_comes(room: Room) -> None:
    choices = [make_generation(text, request_id="cmpl-1", choice_index=n) for n, text in enumerate(("x", "a + b"))]
    await room.generated(*choices)
    await room.submit(choices[0], accepted=False)
    await room.work()
    room.clock.advance(60)
    await room.work()
    await room.submit(choices[1])
    await room.work()
    assert [(one.generation_id, one.label) for one in await room.experience()] == [
        ("cmpl-1", "rejected"),
        ("cmpl-1-1", "accepted"),
    ]


async def test_the_project_of_the_event_counts_else_that_of_the_generation(room: Room) -> None:
    named, unnamed = (make_generation(prompt=fim_prompt(p), project_id="from-gateway") for p in "ab")
    await room.generated(named, unnamed)
    body = rlinf_event(named)
    await room.http.post("/api/training/submit", json=body, headers=HEADERS | {"X-Project-ID": "test-project"})
    await room.submit(unnamed)
    await room.work()
    assert {e.project_id for e in await room.experience()} == {"test-project", "from-gateway"}


async def test_stats_tell_what_the_ledger_knows(room: Room) -> None:
    for version, accepted in [(0, True), (0, False), (1, True)]:
        generation = make_generation(prompt=fim_prompt(f"{version}{accepted}"), policy_version=version)
        await room.generated(generation)
        await room.submit(generation, accepted=accepted)
    await room.submit(make_generation(prompt=fim_prompt("never asked")))
    await room.work()
    room.clock.advance(100)
    await room.work()
    stats = (await room.http.get("/v1/stats", headers=HEADERS)).json()
    assert stats["totals"] == {
        "shown": 3, "accepted": 2, "rejected": 1, "acceptance_rate": 2 / 3, "mean_reward": (0.75 * 2 - 0.25) / 3,
    }  # fmt: skip
    assert [(v["policy_version"], v["shown"], v["acceptance_rate"]) for v in stats["versions"]] == [
        (0, 2, 0.5),
        (1, 1, 1.0),
    ]
    assert stats["events"] == {
        "stored": 4, "pending": 0, "joined": 3, "unmatched": 1, "ambiguous": 0, "resolved": 3,
        "reasons": {"no_generation": 1},
    }  # fmt: skip
    assert stats["experience"] == {"total": 3, "handed_over": 3, "withheld": {}, "settled": 0, "unsent": 0}
    assert KEY_ID not in str(stats)
    other = (await room.http.get("/v1/stats", headers={"Authorization": "Bearer bound-key"})).json()
    assert (other["project_id"], other["totals"]["shown"]) == ("team", 0)
