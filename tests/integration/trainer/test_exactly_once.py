"""Whatever dies when: each experience is in exactly one committed round, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from services.trainer import repository
from services.trainer.claims import Claims
from services.trainer.learner_process import LearnerDied, RoundRefused
from shared.contracts.experience import Experience
from shared.contracts.names import STREAM_EXPERIENCE
from shared.kit.errors import TemporaryError
from tests.fakes.learner import ScriptedLearner
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience


class Killed(BaseException):
    """What a test raises where the process would be gone."""


def killing(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.fixture
async def batch(bench: Bench) -> list[Experience]:
    made = [experience(accepted=index % 2 == 0) for index in range(4)]
    await bench.put(*made)
    return made


async def once(bench: Bench, batch: list[Experience], *, versions: list[int]) -> None:
    """The promise: one row each, nothing left in the stream, no folder without a round."""
    assert bench.dispositions() == {one.experience_id: "trained" for one in batch}
    assert [row.version for row in bench.rounds()] == versions
    assert sum(row.trained for row in bench.rounds()) == len(batch)
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0
    assert bench.folders() == [f"v{version:06d}" for version in versions]
    for row in bench.rounds():
        assert (bench.root / str(row.checkpoint) / "lineage").read_text() == row.round_id


async def restart_and_finish(bench: Bench) -> None:
    """A new trainer and a new learner, until there is nothing to do."""
    bench.learner = ScriptedLearner()
    trainer = bench.trainer(max_wait_s=0)
    while await trainer.tick() != "idle":
        pass


async def test_learner_dies_before_the_rename(bench: Bench, batch: list[Experience]) -> None:
    bench.learner.faults.die_in_round = 0
    with pytest.raises(LearnerDied):
        await bench.trainer().tick()
    assert bench.folders() == ["v000001.tmp"]
    await restart_and_finish(bench)
    await once(bench, batch, versions=[1])


async def test_learner_dies_after_the_rename(bench: Bench, batch: list[Experience]) -> None:
    bench.learner.faults.die_after_rename = 0
    with pytest.raises(LearnerDied):
        await bench.trainer().tick()
    assert bench.folders() == ["v000001"]
    await restart_and_finish(bench)
    await once(bench, batch, versions=[1])


@pytest.mark.parametrize("where", ["insert_round", "insert_dispositions", "save_tracker_values"])
async def test_trainer_dies_between_rename_and_commit(
    bench: Bench, batch: list[Experience], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(repository, where, killing)
        with pytest.raises(Killed):
            await bench.trainer().tick()
    assert (bench.rounds(), bench.dispositions(), bench.folders()) == ([], {}, ["v000001"])
    await restart_and_finish(bench)
    await once(bench, batch, versions=[1])


async def test_a_living_learner_goes_back_to_the_base_after_a_failed_commit(
    bench: Bench, batch: list[Experience], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = bench.trainer(max_wait_s=0)
    with monkeypatch.context() as patched:
        patched.setattr(repository, "insert_dispositions", killing)
        with pytest.raises(Killed):
            await trainer.tick()
    assert await trainer.tick() == "committed"
    assert [request.base.lineage for request in bench.learner.requests] == ["base", "base"]
    assert bench.learner.reloads == 1
    await once(bench, batch, versions=[1])


async def test_trainer_dies_between_commit_and_ack(
    bench: Bench, batch: list[Experience], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Claims, "ack", killing)
        with pytest.raises(Killed):
            await bench.trainer().tick()
    assert await bench.streams.length(STREAM_EXPERIENCE) == 4
    await restart_and_finish(bench)
    assert bench.learner.requests == []
    assert bench.metrics.experience.labels(disposition="duplicate")._value.get() == 4
    await once(bench, batch, versions=[1])


async def test_redis_goes_away_at_the_ack(
    bench: Bench, batch: list[Experience], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise TemporaryError("redis: gone")

    trainer = bench.trainer(max_wait_s=0)
    with monkeypatch.context() as patched:
        patched.setattr(Claims, "ack", away)
        with pytest.raises(TemporaryError):
            await trainer.tick()
    assert await trainer.tick() == "empty"
    await once(bench, batch, versions=[1])


async def test_duplicates_in_the_stream_count_once(bench: Bench, batch: list[Experience]) -> None:
    await bench.put(batch[0], batch[1])
    trainer = bench.trainer(max_wait_s=0, minibatches_per_checkpoint=2)
    while await trainer.tick() != "idle":
        pass
    await bench.put(batch[2])
    assert await trainer.tick() == "empty"
    assert sorted(bench.trained_by_learner()) == sorted(one.experience_id for one in batch)
    await once(bench, batch, versions=[1])


async def test_a_conflict_rolls_the_whole_round_back(
    bench: Bench, batch: list[Experience], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody counts one of ours after we looked: nothing of our round may stay."""
    trainer = bench.trainer(max_wait_s=0)
    with monkeypatch.context() as patched:
        original: Callable[..., None] = repository.insert_dispositions

        def twice(session: Any, round_id: str, dispositions: dict[str, str]) -> None:
            original(session, round_id, dispositions)
            original(session, round_id, dispositions)

        patched.setattr(repository, "insert_dispositions", twice)
        with pytest.raises(TemporaryError) as error:
            await trainer.tick()
    assert isinstance(error.value.__cause__, IntegrityError)
    assert (bench.rounds(), bench.dispositions()) == ([], {})
    assert await trainer.tick() == "committed"
    await once(bench, batch, versions=[1])


async def test_a_dead_trainers_entries_are_taken_over(bench: Bench, batch: list[Experience]) -> None:
    await bench.streams.read(STREAM_EXPERIENCE, "trainer", "another-name", count=4)
    assert await bench.trainer().tick() == "idle"
    assert await bench.trainer(claim_idle_s=0.001).tick() == "committed"
    await once(bench, batch, versions=[1])


async def test_what_the_learner_cannot_train_ends_up_alone_and_is_put_aside(
    bench: Bench, batch: list[Experience]
) -> None:
    poison = batch[2]
    bench.learner.faults.poison = [poison.experience_id]
    trainer = bench.trainer(max_wait_s=0)
    refused = 0
    for _ in range(40):
        bench.now_s += 100
        try:
            await trainer.tick()
        except RoundRefused:
            refused += 1
    assert refused >= bench.settings.max_failures
    assert bench.dispositions() == {one.experience_id: "trained" for one in batch if one is not poison}
    assert await bench.streams.length(f"{STREAM_EXPERIENCE}:dead") == 1
    assert await bench.streams.length(STREAM_EXPERIENCE) == 0


async def test_failures_pause_and_success_resumes(bench: Bench, batch: list[Experience]) -> None:
    bench.learner.faults.fail_rounds = [0]
    trainer = bench.trainer()
    with pytest.raises(RoundRefused):
        await trainer.tick()
    assert await trainer.tick() == "idle"
    bench.now_s = 60
    while await trainer.tick() != "idle":
        pass
    bench.now_s = 120
    await trainer.tick()
    assert len(bench.dispositions()) == len(batch)
    assert bench.metrics.failures_in_row._value.get() == 0
