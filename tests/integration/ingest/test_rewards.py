"""The reward given at resolution: by whom, for which project, and that its numbers are kept."""

from __future__ import annotations

from services.ingest.resolver import Resolver
from services.ingest.rewards import RewardWeights
from services.ingest.settings import IngestSettings
from tests.factories import fim_prompt, make_generation
from tests.integration.ingest.conftest import Room


async def test_an_outcome_keeps_the_name_and_the_numbers_of_its_reward(room: Room) -> None:
    generation = make_generation()
    await room.generated(generation)
    await room.submit(generation)
    await room.work()
    (row,) = await room.rows("SELECT reward, reward_name, reward_digest, accepted_part FROM outcomes")
    assert tuple(row) == (0.75, "default", RewardWeights().digest, None)
    assert await room.value("SELECT digest FROM reward_definitions") == RewardWeights().digest
    assert RewardWeights(**await room.value("SELECT weights FROM reward_definitions")) == RewardWeights()


async def test_a_project_is_rewarded_by_its_own(room: Room, settings: IngestSettings) -> None:
    changed = settings.model_copy(update={"project_rewards": {"team-a": {"accepted": 1.0, "length": 0.5}}})
    room.resolver = Resolver(changed, room.sessions, room.metrics, room.clock)
    for project in ("team-a", "team-b"):
        generation = make_generation("a" * 40, project_id=project, prompt=fim_prompt(project))
        await room.generated(generation)
        await room.submit(generation)
    await room.work()
    rewards = {e.project_id: (e.reward, e.reward_spec.accepted) for e in await room.experience()}
    assert rewards == {"team-a": (1.25, 1.0), "team-b": (0.75, 0.75)}
    names = await room.rows("SELECT reward_name FROM outcomes ORDER BY project_id")
    assert [name for (name,) in names] == ["default/team-a", "default"]
    assert await room.value("SELECT count(*) FROM reward_definitions") == 2
