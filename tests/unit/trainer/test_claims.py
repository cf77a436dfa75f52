"""Which entries a round takes."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from services.trainer.claims import Claims, Waiting, parse
from services.trainer.metrics import TrainerMetrics
from services.trainer.settings import TrainerSettings
from shared.contracts.names import GROUP_TRAINER, STREAM_EXPERIENCE
from shared.kit.errors import InvalidMessage
from shared.streams.memory import MemoryStreams
from tests.unit.trainer.factories import experience

SETTINGS = TrainerSettings(minibatch_size=4, minibatches_per_checkpoint=2, max_wait_s=10, claim_idle_s=0.001)


@pytest.mark.parametrize(
    ("available", "waited_s", "taken"),
    [(0, 99, 0), (3, 0, 0), (3, 9.9, 0), (3, 10, 3), (4, 0, 4), (7, 0, 4), (7, 99, 4), (8, 0, 8), (99, 0, 8)],
)
def test_whole_minibatches_unless_it_waited(available: int, waited_s: float, taken: int) -> None:
    waiting = Waiting(SETTINGS)
    waiting.take(1, 100.0)
    assert waiting.take(available, 100.0 + waited_s) == taken


def test_waiting_starts_with_the_first_and_anew_after_a_round() -> None:
    waiting = Waiting(SETTINGS)
    assert waiting.take(1, 0.0) == 0
    waiting.reset()
    assert waiting.take(1, 10.0) == 0
    assert waiting.take(1, 20.0) == 1


@pytest.fixture
async def streams() -> MemoryStreams:
    streams = MemoryStreams()
    await streams.ensure_group(STREAM_EXPERIENCE, GROUP_TRAINER)
    return streams


def claims(streams: MemoryStreams) -> tuple[Claims, TrainerMetrics]:
    metrics = TrainerMetrics(CollectorRegistry())
    return Claims(streams, SETTINGS, metrics), metrics


async def put(streams: MemoryStreams, count: int) -> list[str]:
    made = [experience() for _ in range(count)]
    await streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in made])
    return [one.experience_id for one in made]


async def test_own_first_then_left_by_others_then_new(streams: MemoryStreams) -> None:
    ids = await put(streams, 4)
    await streams.read(STREAM_EXPERIENCE, GROUP_TRAINER, "somebody", count=1)
    await streams.read(STREAM_EXPERIENCE, GROUP_TRAINER, SETTINGS.trainer_consumer, count=1)
    await asyncio.sleep(0.01)
    own, metrics = claims(streams)
    claim = await own.claim(3)
    assert [one.experience_id for one in claim.experiences] == [ids[1], ids[0], ids[2]]
    assert metrics.redelivered._value.get() == 2


async def test_the_same_id_twice_is_claimed_once(streams: MemoryStreams) -> None:
    one = experience().model_dump_json().encode()
    await streams.append(STREAM_EXPERIENCE, [one, one])
    own, _ = claims(streams)
    claim = await own.claim(5)
    assert (len(claim.experiences), len(claim.repeated), len(claim.entry_ids)) == (1, 1, 2)


async def test_of_the_same_id_the_last_counts(streams: MemoryStreams) -> None:
    one = experience(reward=-0.25)
    again = one.model_copy(update={"reward": 0.25})
    await streams.append(STREAM_EXPERIENCE, [e.model_dump_json().encode() for e in (one, experience(), again)])
    claim = await claims(streams)[0].claim(5)
    assert [e.reward for e in claim.experiences] == [0.25, 0.75]
    assert [entry.entry_id for entry in claim.repeated] == [min(claim.entry_ids)]


async def test_rejects_alone_are_mixed_with_an_accept_that_waits_behind_them(streams: MemoryStreams) -> None:
    made = [experience(accepted=number == 6) for number in range(7)]
    ids = [one.experience_id for one in made]
    await streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in made])
    own, metrics = claims(streams)
    first = await own.claim(4)
    assert [one.experience_id for one in first.experiences] == [ids[0], ids[1], ids[2], ids[6]]
    await own.ack(first.entry_ids)
    rest = await own.claim(4)
    assert [one.experience_id for one in rest.experiences] == ids[3:6]  # what was put off comes first, nothing is lost
    await own.ack(rest.entry_ids)
    assert await own.length() == 0
    assert metrics.experience.labels(disposition="dead")._value.get() == 0


async def test_a_mixed_claim_looks_no_further(streams: MemoryStreams) -> None:
    made = [experience(accepted=number % 2 == 0) for number in range(6)]
    await streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in made])
    own, _ = claims(streams)
    assert len((await own.claim(4)).experiences) == 4
    entries = await streams.read(STREAM_EXPERIENCE, GROUP_TRAINER, "other", count=9)
    assert len(entries) == 2


async def keyed(streams: MemoryStreams, keys: str) -> None:
    """Both labels of every key, so that labels decide nothing."""
    made = [experience(key_id=key, accepted=number % 2 == 0) for number, key in enumerate(keys)]
    await streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in made])


async def rounds_of(streams: MemoryStreams, count: int) -> list[str]:
    """The keys of round after round, until nothing is left."""
    own, metrics = claims(streams)
    seen = []
    while await own.length():
        claim = await own.claim(count)
        seen.append("".join(claim.keys))
        await own.ack(claim.entry_ids)
    assert metrics.redelivered._value.get() == 0
    return seen


async def test_a_flood_of_one_key_leaves_room_for_the_others_behind_it(streams: MemoryStreams) -> None:
    await keyed(streams, "AAAAAAAAAAAABAC")
    assert await rounds_of(streams, 4) == ["AABC", "AAAA", "AAAA", "AAA"]


async def test_a_key_that_is_alone_gets_every_place_and_nothing_more_is_claimed(streams: MemoryStreams) -> None:
    await keyed(streams, "AAAAAAAAA")
    own, _ = claims(streams)
    assert (await own.claim(4)).keys == ["A"] * 4
    assert len(await streams.read(STREAM_EXPERIENCE, GROUP_TRAINER, "other", count=9)) == 5


async def test_the_share_holds_in_each_minibatch_of_a_round(streams: MemoryStreams) -> None:
    await keyed(streams, "AAAAAAAABBBB")
    rounds = await rounds_of(streams, 8)
    assert [sorted(rounds[0][:4]), sorted(rounds[0][4:])] == [["A", "A", "B", "B"]] * 2
    assert "".join(sorted("".join(rounds))) == "A" * 8 + "B" * 4


async def test_the_other_label_comes_in_only_as_far_as_its_key_has_a_share(streams: MemoryStreams) -> None:
    made = [experience(key_id=key, accepted=key == "B") for key in "AAAAAABBB"]
    await streams.append(STREAM_EXPERIENCE, [one.model_dump_json().encode() for one in made])
    assert sorted((await claims(streams)[0].claim(4)).keys) == ["A", "A", "B", "B"]


async def test_poison_is_put_aside_with_its_reason(streams: MemoryStreams) -> None:
    await streams.append(STREAM_EXPERIENCE, [b"{", b"{}"])
    await put(streams, 1)
    own, metrics = claims(streams)
    claim = await own.claim(5)
    assert len(claim.experiences) == 1
    assert [reason for _, _, reason in streams.dead] == ["payload: json_invalid", "experience_id: missing"]
    assert metrics.experience.labels(disposition="dead")._value.get() == 2
    assert await own.length() == 1


def test_the_reason_never_holds_the_value() -> None:
    payload = experience().model_copy(update={"label": "secret code"}).model_dump_json(warnings=False).encode()
    with pytest.raises(InvalidMessage) as error:
        parse(payload)
    assert str(error.value) == "label: literal_error"
