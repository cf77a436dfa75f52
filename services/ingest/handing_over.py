"""Hands experience to the trainer again, with another reward, as long as no round has dealt with it.

In: resolved outcomes. Out: their outbox messages, made anew from the ledger, unsent. Which is safe at any time: the
trainer knows an experience by its id, so whatever is delivered twice is trained once. What is in the stream already
stays there and comes first; only where both are claimed together the newer one counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from services.ingest.comparing import SAME
from services.ingest.grouping import resolve
from services.ingest.resolver import Collected, collect
from services.ingest.reward_queries import not_trained
from services.ingest.rewards import ProjectRewards
from shared.contracts.experience import Experience
from shared.contracts.names import STREAM_EXPERIENCE
from shared.db.models import ExperienceRow, OutboxRow, OutcomeRow

REWARD_DECIDES = frozenset({"typed_out", "no_reward"})
"""Reasons for withholding that another reward may lift."""


async def hand_over(session: AsyncSession, outcomes: Sequence[OutcomeRow], rewards: ProjectRewards) -> int:
    """How many were handed over: not trained yet, and worth something else than the trainer was told."""
    waiting = await not_trained(session, [row.outcome_id for row in outcomes])
    wanted = [row for row in outcomes if (held := waiting.get(row.outcome_id)) is not None and _may_go(held)]
    if not wanted:
        return 0
    handed = 0
    for one in await collect(session, wanted, {}):
        handed += await _hand_over(session, one, waiting[one.row.outcome_id], rewards)
    return handed


def _may_go(row: ExperienceRow) -> bool:
    return row.withheld is None or row.withheld in REWARD_DECIDES


async def _hand_over(session: AsyncSession, one: Collected, row: ExperienceRow, rewards: ProjectRewards) -> bool:
    itself_labelled = row.withheld is None
    display = one.display_with(already_labelled=one.display.already_labelled and not itself_labelled)
    resolution = resolve(display, one.shown, one.others, rewards.of(one.row.project_id).weights)
    experience = resolution.experience
    same = itself_labelled and abs(experience.reward - row.reward) <= SAME and experience.label == row.label
    if resolution.withheld is not None or same:
        return False
    row.reward, row.label, row.withheld = experience.reward, experience.label, None
    row.siblings = list(resolution.counted) or None
    await _send(session, experience)
    return True


async def _send(session: AsyncSession, experience: Experience) -> None:
    """A new message, or the old one rewritten, whether it was sent or not."""
    payload = experience.model_dump_json().encode()
    statement = insert(OutboxRow).values(message_id=experience.experience_id, stream=STREAM_EXPERIENCE, payload=payload)
    fresh = {"payload": payload, "sent_at": None}
    await session.execute(statement.on_conflict_do_update(index_elements=["message_id"], set_=fresh))
