"""Rounds on real PostgreSQL and Redis: what is trained, put aside, committed and acknowledged."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from services.trainer import repository
from services.trainer.learner_process import RoundAbandoned
from shared.contracts.names import STREAM_EXPERIENCE
from shared.db.engine import unit_of_work
from shared.db.models import CheckpointRow, TrainingRoundRow
from shared.kit.clock import utc_now
from shared.kit.errors import SettingsError
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience


async def test_a_round_from_claim_to_publisher(bench: Bench) -> None:
    batch = [experience(accepted=index % 2 == 0) for index in range(4)]
    await bench.put(*batch)
    assert await bench.trainer().tick() == "committed"
    [row] = bench.rounds()
    assert (row.version, row.parent_version, row.checkpoint, row.trained) == (1, 0, "v000001", 4)
    assert row.stats["steps"][0]["groups"] == 4
    assert row.stats["reward/shown_mean"] == pytest.approx(0.25)
    assert bench.dispositions() == {one.experience_id: "trained" for one in batch}
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    assert bench.told == 1
    assert (bench.root / "v000001" / "lineage").read_text() == row.round_id


async def test_siblings_are_scored_and_reach_the_learner(bench: Bench) -> None:
    one = experience("return total")
    await bench.put(one)
    trainer = bench.trainer(minibatch_size=1)
    await trainer.tick()
    [[[group]]] = [request.minibatches for request in bench.learner.requests]
    assert [len(sample.token_ids) for sample in group.samples] == [13, 9, 13, 1]  # shown, x, total, silence
    shown, other, same, silent = [sample.advantage for sample in group.samples]
    assert shown > same > other
    assert silent < 0


async def test_the_next_round_builds_on_the_last(bench: Bench) -> None:
    trainer = bench.trainer()
    for _ in range(3):
        await bench.put(*(experience() for _ in range(4)))
        assert await trainer.tick() == "committed"
    assert [row.version for row in bench.rounds()] == [1, 2, 3]
    assert [request.base.version for request in bench.learner.requests] == [0, 1, 2]
    assert bench.learner.requests[2].base.lineage == bench.rounds()[1].round_id
    assert bench.learner.reloads == 0


async def test_several_minibatches_make_one_checkpoint(bench: Bench) -> None:
    await bench.put(*(experience() for _ in range(9)))
    trainer = bench.trainer(minibatches_per_checkpoint=3)
    assert await trainer.tick() == "committed"
    assert [len(minibatch) for minibatch in bench.learner.requests[0].minibatches] == [4, 4]
    assert await bench.streams.length(STREAM_EXPERIENCE) == 1


async def test_too_few_wait_unclaimed_until_it_is_time(bench: Bench) -> None:
    await bench.put(experience(), experience())
    trainer = bench.trainer()
    assert await trainer.tick() == "idle"
    bench.now_s = 9.9
    assert await trainer.tick() == "idle"
    assert await bench.streams.read(STREAM_EXPERIENCE, "trainer", "somebody", count=1)  # was free to claim
    bench.now_s = 10.0
    assert await trainer.tick() == "committed"
    assert len(bench.dispositions()) == 1


async def test_stale_and_invalid_are_put_aside_without_a_checkpoint(bench: Bench) -> None:
    for _ in range(3):
        await bench.put(*(experience() for _ in range(4)))
        await bench.trainer().tick()
    old, broken = experience(version=0), experience(prompt_token_ids=[], version=3)
    await bench.put(old, broken)
    assert await bench.trainer(max_wait_s=0).tick() == "empty"
    assert bench.rounds()[-1].version is None
    assert bench.rounds()[-1].parent_version == 3
    dispositions = bench.dispositions()
    assert (dispositions[old.experience_id], dispositions[broken.experience_id]) == ("stale", "invalid")
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    assert bench.told == 3
    await bench.put(*(experience(version=3) for _ in range(4)))
    assert await bench.trainer().tick() == "committed"
    assert bench.rounds()[-1].version == 4


async def test_no_signal_is_recorded_and_counted(bench: Bench) -> None:
    await bench.put(experience(reward=0.0))
    assert await bench.trainer(minibatch_size=1, group_size=1, advantage="raw").tick() == "empty"
    assert list(bench.dispositions().values()) == ["no_signal"]
    assert bench.metrics.zero_advantage._value.get() == 1


async def test_a_step_that_was_not_finite_is_tried_again_in_halves(bench: Bench) -> None:
    bench.learner.faults.skip_steps = [0]
    await bench.put(*(experience() for _ in range(8)))
    trainer = bench.trainer(minibatches_per_checkpoint=2, max_wait_s=0)
    assert await trainer.tick() == "committed"
    assert list(bench.dispositions().values()) == ["trained"] * 4
    assert bench.rounds()[0].trained == 4
    assert await bench.streams.length(STREAM_EXPERIENCE) == 4
    bench.learner.faults.skip_steps = []
    assert await trainer.tick() == "committed"
    assert [len(minibatch) for minibatch in bench.learner.requests[1].minibatches] == [2, 2]
    assert list(bench.dispositions().values()) == ["trained"] * 8
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    assert bench.metrics.held_back._value.get() == 4
    assert bench.metrics.minibatches.labels(outcome="non_finite")._value.get() == 1
    assert trainer._held_back._failures == {}


async def test_what_is_not_finite_alone_becomes_a_dead_letter_and_can_come_back(bench: Bench) -> None:
    batch = [experience(accepted=index % 2 == 0) for index in range(4)]
    culprit = batch[2]
    bench.learner.faults.not_finite = [culprit.experience_id]
    await bench.put(*batch)
    trainer = bench.trainer(max_wait_s=0)
    for _ in range(20):
        bench.now_s += 100
        await trainer.tick()
    others = {one.experience_id: "trained" for one in batch if one is not culprit}
    assert bench.dispositions() == others
    [letter] = await bench.streams.dead_letters(STREAM_EXPERIENCE)
    assert letter.reason.startswith("non_finite")
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    bench.learner.faults.not_finite = []
    assert await bench.streams.requeue(STREAM_EXPERIENCE, letter.entry_id)
    assert await trainer.tick() == "committed"
    assert bench.dispositions() == others | {culprit.experience_id: "trained"}


async def test_a_round_that_changed_nothing_makes_no_version_and_pauses(bench: Bench) -> None:
    bench.learner.faults.skip_steps = [0]
    await bench.put(*(experience() for _ in range(4)))
    trainer = bench.trainer(tracker_decay=1.0, max_wait_s=0)
    assert await trainer.tick() == "empty"
    assert (bench.rounds()[0].version, bench.dispositions(), bench.told) == (None, {}, 0)
    assert bench.metrics.failures_in_row._value.get() == 1
    assert await trainer.tick() == "idle"
    bench.now_s += 100
    bench.learner.faults.skip_steps = []
    while await trainer.tick() != "idle":
        pass
    assert list(bench.dispositions().values()) == ["trained"] * 4
    assert bench.rounds()[1].version == 1
    assert bench.learner.requests[1].base.version == 0
    with unit_of_work(bench.database) as session:
        [value] = repository.tracker_values(session, ["acme/python/32"]).values()
    assert value.weight == 4.0  # each reward once


async def test_engine_and_learner_too_far_apart_is_put_aside_and_said(bench: Bench) -> None:
    bench.learner.faults.far_apart = [0]
    await bench.put(*(experience() for _ in range(8)))
    with capture_logs() as logs:
        assert await bench.trainer(minibatches_per_checkpoint=2).tick() == "committed"
    assert sorted(bench.dispositions().values()) == ["logprob_gap"] * 4 + ["trained"] * 4
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    assert bench.metrics.minibatches.labels(outcome="logprob_gap")._value.get() == 1
    assert bench.metrics.experience.labels(disposition="logprob_gap")._value.get() == 4
    [said] = [line for line in logs if line["event"] == "mini-batch not trained"]
    assert "differ by 1.25 nats a token (at most 3.5), more than TABWISE_MAX_LOGPROB_GAP=0.5" in said["why"]


async def test_too_old_experience_is_trained_off_policy_where_that_is_wanted(bench: Bench) -> None:
    for _ in range(3):
        await bench.put(*(experience() for _ in range(4)))
        await bench.trainer().tick()
    old, new = experience(version=0), experience(version=3)
    await bench.put(old, new)
    assert await bench.trainer(max_wait_s=0, stale="cap").tick() == "committed"
    dispositions = bench.dispositions()
    assert (dispositions[old.experience_id], dispositions[new.experience_id]) == ("trained_stale", "trained")
    marked = {group.group_id: group.off_policy for group in bench.learner.requests[-1].minibatches[0]}
    assert marked == {old.experience_id: True, new.experience_id: False}
    assert bench.rounds()[-1].trained == 2
    assert bench.metrics.experience.labels(disposition="trained_stale")._value.get() == 1


async def test_poison_goes_to_the_dead_letters(bench: Bench) -> None:
    await bench.streams.append(STREAM_EXPERIENCE, [b"{]", b'{"experience_id": 1}'])
    await bench.put(*(experience() for _ in range(2)))
    assert await bench.trainer().tick() == "committed"
    assert len(bench.dispositions()) == 2
    assert await bench.streams.length(f"{STREAM_EXPERIENCE}:dead") == 2
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0


async def test_poison_between_good_ones_blocks_none_of_them(bench: Bench) -> None:
    for _ in range(4):
        await bench.put(experience())
        await bench.streams.append(STREAM_EXPERIENCE, [b"poison"])
    trainer = bench.trainer(max_wait_s=0)
    while await bench.streams.length(STREAM_EXPERIENCE):
        await trainer.tick()
    letters = await bench.streams.dead_letters(STREAM_EXPERIENCE)
    assert [letter.reason for letter in letters] == ["payload: json_invalid"] * 4
    assert list(bench.dispositions().values()) == ["trained"] * 4


async def test_the_engine_being_away_costs_siblings_only(bench: Bench) -> None:
    bench.engine.faults.status = 503
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    assert await bench.trainer().tick() == "committed"
    assert bench.metrics.without_baseline.labels(why="lone")._value.get() == 4
    samples = [group.samples for group in bench.learner.requests[0].minibatches[0]]
    assert [len(one) for one in samples] == [1, 1, 1, 1]
    assert [one[0].advantage > 0 for one in samples] == [True, False, True, False]


async def test_the_tracker_learns_with_the_commit(bench: Bench) -> None:
    await bench.put(*(experience() for _ in range(4)))
    await bench.trainer(tracker_decay=1.0).tick()
    with unit_of_work(bench.database) as session:
        [(bucket, value)] = repository.tracker_values(session, ["acme/python/32"]).items()
    assert (bucket, value.weight) == ("acme/python/32", 4.0)
    assert value.mean == pytest.approx(0.75)


async def test_only_one_trainer_runs_a_round(bench: Bench) -> None:
    await bench.put(*(experience() for _ in range(4)))
    with repository.only_trainer(bench.database) as mine:
        assert mine
        assert await bench.trainer().tick() == "busy"
    assert await bench.trainer().tick() == "committed"


async def test_old_checkpoints_go_when_the_publisher_is_past_them(bench: Bench) -> None:
    for version in range(1, 5):
        await bench.put(*(experience(version=version - 1) for _ in range(4)))
        await bench.trainer(keep_checkpoints=1).tick()
        if version == 2:
            assert bench.folders() == ["v000001", "v000002"]
            with unit_of_work(bench.database) as session:
                session.add(
                    CheckpointRow(
                        version=2, parent_version=1, uri="x", manifest_sha256="", size_bytes=1, status="live",
                        uploaded_at=utc_now(),
                    )
                )  # fmt: skip
    assert bench.folders() == ["v000003", "v000004"]


async def test_a_missing_base_is_named(bench: Bench) -> None:
    with unit_of_work(bench.database) as session:
        row = TrainingRoundRow(round_id="r", version=7, parent_version=6, checkpoint="v000007", started_at=utc_now(),
                               committed_at=utc_now(), minibatches=1, trained=1, stats={})  # fmt: skip
        session.add(row)
    await bench.put(*(experience() for _ in range(4)))
    with pytest.raises(SettingsError, match="TABWISE_CHECKPOINT_ROOT"):
        await bench.trainer().tick()


async def test_stopping_abandons_the_sampling(bench: Bench) -> None:
    bench.engine.faults.first_token_delay_s = 30
    await bench.put(*(experience() for _ in range(4)))
    tick = asyncio.create_task(bench.trainer().tick())
    await asyncio.sleep(0.3)
    bench.stopping.request()
    with pytest.raises(RoundAbandoned):
        await tick
    assert bench.learner.requests == []
    assert await bench.streams.length(STREAM_EXPERIENCE) == 4
    assert bench.rounds() == []


async def test_no_lock_is_left_behind(bench: Bench) -> None:
    await bench.put(*(experience() for _ in range(4)))
    await bench.trainer().tick()
    with unit_of_work(bench.database) as session:
        assert session.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == 0
