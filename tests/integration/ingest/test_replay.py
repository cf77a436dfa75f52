"""A reward computed again over a few hundred displays: figures, what is written, and what the trainer gets anew."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from services.ingest.replaying import Progress, Replay, Wish
from services.ingest.reward_files import read_reward
from services.ingest.rewards import NamedReward, ProjectRewards, RewardWeights
from shared.contracts.experience import Experience
from shared.contracts.generation import Generation
from shared.db.models import ExperienceRow, FeedbackEventRow, OutboxRow, OutcomeRow
from shared.streams import RedisStreams
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room

DISPLAYS = 300
ACCEPTED_EVERY = 3
START = datetime(2026, 11, 1, tzinfo=UTC)
DEFAULT = ProjectRewards(NamedReward.of("default", RewardWeights()))


def reward(name: str, **weights: float) -> ProjectRewards:
    return ProjectRewards(NamedReward.of(name, RewardWeights(**weights)))


async def history(room: Room, displays: int = DISPLAYS) -> None:
    """Displays of two projects and three versions; every third is accepted, all are resolved, none is trained."""
    generations = [_generation(number) for number in range(displays)]
    await room.generated(*generations)
    async with room.sessions.begin() as session:
        rows = [_display(number, shown) for number, shown in enumerate(generations)]
        for table in zip(*rows, strict=True):  # what is referred to first
            session.add_all(table)
            await session.flush()


def _generation(number: int) -> Generation:
    prompt = fim_prompt(f"def f{number}(): return ")
    text, project = f"value_{number} + b", f"team-{number % 2}"
    return make_generation(text, prompt=prompt, project_id=project, policy_version=number % 3)


def _display(number: int, shown: Generation) -> tuple[OutcomeRow, FeedbackEventRow, ExperienceRow]:
    name, accepted = f"{number:04}", number % ACCEPTED_EVERY == 0
    project, moment = shown.project_id, START + timedelta(seconds=number // 7)  # several have the same moment
    common = {"key_id": shown.key_id, "project_id": project, "generation_id": shown.generation_id}
    outcome = OutcomeRow(
        **common,
        outcome_id=name,
        client_completion_id=name,
        choice_index=0,
        source="continue",
        state="accepted" if accepted else "rejected",
        shown_text=shown.text,
        credited_tokens=len(shown.token_ids),
        first_event_at=moment,
        last_event_at=moment,
        resolves_at=moment,
        resolved_at=moment,
        reward=0.75 if accepted else -0.25,
    )
    experience = ExperienceRow(
        **common,
        experience_id=f"exp-{name}",
        outcome_id=name,
        policy_version=number % 3,
        label=outcome.state,
        reward=outcome.reward,
        feedback_at=moment,
        withheld=None,
    )
    return outcome, _event(outcome, accepted), experience


def _event(outcome: OutcomeRow, accepted: bool) -> FeedbackEventRow:
    return FeedbackEventRow(
        dedupe_key=outcome.outcome_id,
        source="continue",
        kind="verdict",
        project_id=outcome.project_id,
        key_id=outcome.key_id,
        client_completion_id=outcome.outcome_id,
        accepted=accepted,
        completion=outcome.shown_text,
        filepath="/w/main.py",
        cache_hit=False,
        received_at=outcome.first_event_at,
        evidence={},
        status="joined",
        next_attempt_at=outcome.first_event_at,
        outcome_id=outcome.outcome_id,
        generation_id=outcome.generation_id,
    )


async def replayed(room: Room, wish: Wish, **how: Any) -> Progress:
    return await Replay(room.sessions, wish, batch_size=how.pop("batch_size", 37)).run(**how)


async def stored(room: Room) -> int:
    tables = ("rewards", "reward_replays", "reward_definitions", "outbox")
    return sum([await room.value(f"SELECT count(*) FROM {table}") for table in tables])


async def test_the_same_reward_changes_nothing_and_nothing_is_written(room: Room) -> None:
    await history(room)
    progress = await replayed(room, Wish(DEFAULT))
    total = progress.comparison.total
    assert (total.count, total.changed, total.sign_flips, progress.done) == (DISPLAYS, 0, 0, DISPLAYS)
    assert total.mean_before == total.mean_after == pytest.approx(0.75 / 3 - 0.25 * 2 / 3)
    assert total.correlation == pytest.approx(1.0)
    assert {v: f.count for v, f in progress.comparison.versions.items()} == {0: 100, 1: 100, 2: 100}
    assert await stored(room) == 0


async def test_another_reward_is_compared_with_the_one_given_or_a_second_one(room: Room) -> None:
    await history(room)
    other = reward("other", accepted=-0.1, rejected=-0.25)
    total = (await replayed(room, Wish(other))).comparison.total
    assert (total.changed, total.sign_flips) == (100, 100)
    shifted = (await replayed(room, Wish(other, compare=reward("third", accepted=0.9)))).comparison.total
    assert shifted.count == DISPLAYS
    assert shifted.mean_before == pytest.approx(0.9 / 3 - 0.5 / 3)


async def test_the_scope_is_a_project_and_a_time(room: Room) -> None:
    await history(room)
    progress = await replayed(room, Wish(DEFAULT, project_id="team-1", since=START + timedelta(seconds=10)))
    assert progress.comparison.total.count == progress.total == len([n for n in range(70, DISPLAYS) if n % 2])


async def test_what_became_known_later_counts(room: Room) -> None:
    await history(room, 30)
    async with room.sessions.begin() as session:
        typed = {"reference_kind": "settled", "reference_text": "value_1 + b"}
        await session.execute(update(OutcomeRow).where(OutcomeRow.outcome_id == "0001").values(typed))
        late = update(OutcomeRow).where(OutcomeRow.outcome_id == "0002").values(state="accepted")
        await session.execute(late)
        said = update(FeedbackEventRow).where(FeedbackEventRow.outcome_id == "0004").values(kind="feedback")
        await session.execute(said)
    await replayed(room, Wish(reward("typed", typed_out=0.5), apply=True))
    rows = await room.rows("SELECT outcome_id, reward, terms FROM rewards WHERE outcome_id IN ('0001','0002','0004')")
    assert {row.outcome_id: (row.reward, row.terms) for row in rows} == {
        "0001": (0.25, {"rejected": -0.25, "typed_out": 0.5}),
        "0002": (0.75, {"accepted": 0.75}),
        "0004": (-0.5, {"rejected": -0.25, "dismissed": -0.25}),
    }


async def test_what_was_observed_later_counts(room: Room) -> None:
    """Of the first accept half is gone after 2 min and all after 10; the second was removed within 30 s."""
    await history(room, 12)
    async with room.sessions.begin() as session:
        for outcome_id, after_s, share in [("0000", 120, 0.5), ("0000", 600, 0.0), ("0003", 30, 0.0)]:
            observed = {"outcome": outcome_id, "after_s": after_s, "share": share}
            await session.execute(text(OBSERVED), observed)
    kept = read_reward(Path("configs/rewards/kept-code.yaml"))
    total = (await replayed(room, Wish(kept, apply=True))).comparison.total
    assert (total.changed, total.sign_flips) == (2, 0)
    rows = await room.rows("SELECT reward, terms FROM rewards WHERE outcome_id IN ('0000', '0003') ORDER BY outcome_id")
    assert [row.terms for row in rows] == [
        {"accepted": 0.75, "retention_2m": -0.1, "retention_10m": -0.45},
        {"accepted": 0.75, "retention_30s": -0.1, "reversed": -0.25},
    ]
    assert [row.reward for row in rows] == pytest.approx([0.2, 0.4])


OBSERVED = """
    INSERT INTO observations (generation_id, outcome_id, key_id, project_id, kind, after_s, value, observed_at)
    SELECT generation_id, outcome_id, key_id, project_id, 'retention', :after_s, :share, now()
    FROM outcomes WHERE outcome_id = :outcome"""


async def test_apply_stores_beside_and_overwrites_nothing(room: Room) -> None:
    await history(room)
    wish = Wish(reward("other", accepted=1.0), apply=True)
    for _ in range(2):  # the second time brings the same up to date
        progress = await replayed(room, wish)
        assert (progress.comparison.stored, progress.resumed) == (DISPLAYS, False)
    assert await room.value("SELECT count(*) FROM rewards") == DISPLAYS
    assert await room.value("SELECT sum(reward) FROM rewards") == pytest.approx(100 - 0.25 * 200)
    assert await room.value("SELECT sum(reward) FROM outcomes") == pytest.approx(75 - 0.25 * 200)
    assert await room.value("SELECT weights->>'accepted' FROM reward_definitions") == "1.0"
    assert await room.value("SELECT count(*) FROM outbox") == 0


async def test_a_name_stands_for_one_set_of_numbers(room: Room) -> None:
    await history(room, 20)
    await replayed(room, Wish(reward("other", accepted=1.0), apply=True))
    with pytest.raises(Exception, match="'other' are stored already with other numbers"):
        await replayed(room, Wish(reward("other", accepted=2.0), apply=True))
    assert (await replayed(room, Wish(reward("other", accepted=2.0)))).comparison.total.count == 20


class Killed(Exception):
    """What a test stops a replay with."""


async def test_a_stopped_replay_goes_on_where_it_was(room: Room) -> None:
    await history(room)
    wish = Wish(reward("other", accepted=1.0), apply=True)

    def kill(progress: Progress) -> None:
        if progress.done >= 100:
            raise Killed

    with pytest.raises(Killed):
        await replayed(room, wish, tell=kill)
    half = await room.value("SELECT count(*) FROM rewards")
    assert 100 <= half < DISPLAYS
    rest = await replayed(room, wish)
    assert (rest.resumed, rest.total, rest.done) == (True, DISPLAYS - half, DISPLAYS - half)
    assert rest.comparison == (await replayed(room, wish)).comparison
    assert rest.comparison.total.count == await room.value("SELECT count(*) FROM rewards") == DISPLAYS


async def test_what_was_not_trained_is_handed_over_again_and_the_rest_is_not(room: Room) -> None:
    await history(room, 30)
    async with room.sessions.begin() as session:
        await session.execute(text(ROUND))
        await session.execute(
            text("INSERT INTO trained_experience VALUES ('exp-0000', 'r', 'trained'), ('exp-0003', 'r', 'stale')")
        )
        await session.execute(text("UPDATE experience SET withheld = 'bad_logprobs' WHERE outcome_id = '0006'"))
        await session.execute(text(TYPED))
        session.add(OutboxRow(message_id="exp-0009", stream="x", payload=b"old", sent_at=START))
    wish = Wish(reward("other", accepted=1.0, typed_out=0.2), apply=True, hand_over=True)
    progress = await replayed(room, wish)
    again = {"exp-0009", "exp-0012", "exp-0015", "exp-0018", "exp-0021", "exp-0024", "exp-0027", "exp-0001"}
    assert progress.comparison.handed_over == len(again)
    await room.relay.step()
    experience = {e.experience_id: e for e in await room.experience()} | await _of_stream(room)
    assert set(experience) == again
    assert experience["exp-0012"].reward == experience["exp-0012"].reward_spec.accepted == 1.0
    assert experience["exp-0001"].reward == pytest.approx(0.0)
    assert await room.value("SELECT withheld IS NULL FROM experience WHERE outcome_id = '0001'")
    assert (await replayed(room, wish)).comparison.handed_over == 0


ROUND = """
    INSERT INTO training_rounds (round_id, parent_version, started_at, committed_at, minibatches, trained, stats)
    VALUES ('r', 0, now(), now(), 1, 2, '{}')"""
TYPED = """
    WITH typed AS (UPDATE experience SET withheld = 'typed_out' WHERE outcome_id = '0001')
    UPDATE outcomes SET reference_kind = 'settled', reference_text = 'value_1 + b' WHERE outcome_id = '0001'"""


async def _of_stream(room: Room) -> dict[str, Experience]:
    """What went to the stream that the older message was for."""
    streams: RedisStreams = room.streams
    await streams.ensure_group("x", "test")
    entries = await streams.read("x", "test", "test", count=100)
    found = [Experience.model_validate_json(entry.payload) for entry in entries]
    return {one.experience_id: one for one in found}


async def test_the_command_prints_json_lines_or_a_table(room: Room, tmp_path: Path) -> None:
    await history(room, 60)
    file = tmp_path / "reward.yaml"
    file.write_text("name: generous\naccepted: 1.0\n")
    command = [sys.executable, "-m", "services.ingest.replay", "--reward", str(file)]
    environment = {"TABWISE_DATABASE_URL": room.settings.database_url, "PATH": "/usr/bin:/bin"}

    def run(*options: str) -> str:
        done = subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    *versions, total = [json.loads(line) for line in run("--json").splitlines()]
    assert [line["policy_version"] for line in versions] == [0, 1, 2]
    assert total == {
        "replay": "generous",
        "against": "the reward given",
        "policy_version": None,
        "count": 60,
        "undecided": 0,
        "mean_before": 0.0833,
        "mean_after": 0.1667,
        "changed": 20,
        "sign_flips": 0,
        "correlation": 1.0,
        "stored": 0,
        "handed_over": 0,
    }
    assert "Nothing was written" in run()
    assert "60 rewards stored as 'generous'." in run("--apply")
