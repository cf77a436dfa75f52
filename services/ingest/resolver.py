"""Gives each display its final reward and hands it to the trainer, in one transaction.

In: outcomes that nothing can change any more. Out: outcomes.resolved_at and reward, experience, outbox.
Accepts go at once. Rejects wait a little for a later request that shows what the developer typed instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from services.ingest.choices import counted_as_siblings, lock_requests, with_verdict
from services.ingest.displays import display_of
from services.ingest.evidence import Evidence
from services.ingest.evidence_queries import evidence_of
from services.ingest.grouping import Display, Resolution, resolve
from services.ingest.metrics import IngestMetrics
from services.ingest.outcomes import SETTLED
from services.ingest.protocols.common import dedupe_key
from services.ingest.quarantine_queries import quarantined
from services.ingest.repository import Repository, Wanted
from services.ingest.reward_queries import define_rewards
from services.ingest.rewards import NamedReward
from services.ingest.rows import from_row
from services.ingest.settings import IngestSettings
from services.ingest.settled import anchor, settled_text
from shared import fim
from shared.contracts.generation import Generation
from shared.contracts.names import STREAM_EXPERIENCE
from shared.db.models import ExperienceRow, OutboxRow, OutcomeRow
from shared.kit.clock import Clock, utc_now

log = structlog.get_logger()

BEGINNING = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
OVERLAP = timedelta(seconds=1)
"""Generations whose transaction began this long before the last look may have been invisible then."""


class Resolver:
    """Three steps, each one batch in one transaction: accepts, rejects with their settled text, silent clients'."""

    def __init__(
        self,
        settings: IngestSettings,
        sessions: async_sessionmaker[AsyncSession],
        metrics: IngestMetrics,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._metrics = metrics
        self._clock = clock
        self._looked_at: dict[str, datetime] = {}
        self._rewards = settings.rewards
        self._defined: set[NamedReward] = set()

    async def step_accepted(self) -> int:
        """Resolve accepts; how many."""
        async with self._sessions.begin() as session:
            repository = Repository(session)
            now = self._clock()
            due = await repository.due_accepted(now, self._settings.ingest_batch_size)
            resolutions = await self._resolve(session, due, {}, now)
        self._count(resolutions)
        return len(due)

    async def step_settled(self) -> int:
        """Resolve what silent clients' developers are seen to have written as suggested; how many."""
        async with self._sessions.begin() as session:
            now = self._clock()
            due = await Repository(session).due_settled(now, self._settings.ingest_batch_size)
            resolutions = await self._resolve(session, due, {}, now)
        self._count(resolutions)
        return len(due)

    async def step_rejected(self) -> int:
        """Look for settled text, resolve the rejects that have it or waited long enough; how many."""
        async with self._sessions.begin() as session:
            repository = Repository(session)
            now = self._clock()
            waiting = await repository.due_rejected(now, self._settings.ingest_batch_size)
            settled = await self._find_settled(repository, waiting)
            patience = now - timedelta(seconds=self._settings.settle_grace_s)
            due = [row for row in waiting if row.outcome_id in settled or _is_over(row, patience)]
            resolutions = await self._resolve(session, due, settled, now)
        self._count(resolutions)
        for row in due:
            self._looked_at.pop(row.outcome_id, None)
            self._metrics.settled.labels("yes" if row.outcome_id in settled else "no").inc()
        return len(due)

    async def _find_settled(self, repository: Repository, waiting: Sequence[OutcomeRow]) -> dict[str, str]:
        """Settled text by outcome id, from the requests that came since the last look."""
        if not waiting:
            return {}
        prompts = await repository.shown_prompts({row.generation_id for row in waiting})
        places = {row.outcome_id: fim.parse(prompts[row.generation_id]) for row in waiting}
        wanted = [
            Wanted(outcome_id, self._looked_at.get(outcome_id, BEGINNING), text)
            for outcome_id, place in places.items()
            if place and (text := anchor(place.prefix)) is not None
        ]
        if not wanted:
            return {}
        grace = timedelta(seconds=self._settings.settle_grace_s)
        looked_at, later = await repository.later_prompts(wanted, grace)
        self._looked_at = {one.outcome_id: looked_at - OVERLAP for one in wanted}
        found = {outcome_id: _first_settled(places[outcome_id], texts) for outcome_id, texts in later.items()}
        return {outcome_id: text for outcome_id, text in found.items() if text is not None}

    async def _resolve(
        self, session: AsyncSession, due: Sequence[OutcomeRow], settled: Mapping[str, str], now: datetime
    ) -> list[tuple[OutcomeRow, Resolution]]:
        if not due:
            return []
        await define_rewards(session, {self._rewards.of(row.project_id) for row in due} - self._defined)
        resolutions = []
        labelled: set[str] = set()
        for one in await collect(session, due, settled):
            display = one.display_with(
                already_labelled=one.display.already_labelled or one.shown.generation_id in labelled
            )
            reward = self._rewards.of(one.row.project_id)
            resolution = resolve(display, one.shown, one.others, reward.weights)
            _write(session, one.row, resolution, reward, now)
            if resolution.withheld is None:
                labelled.add(one.shown.generation_id)
            resolutions.append((one.row, resolution))
        return resolutions

    def _count(self, resolutions: Sequence[tuple[OutcomeRow, Resolution]]) -> None:
        self._defined |= {self._rewards.of(row.project_id) for row, _ in resolutions}
        for row, resolution in resolutions:
            experience = resolution.experience
            if row.state != SETTLED:  # of silent clients only what was written is known: no part of an acceptance rate
                self._metrics.resolved_display(
                    experience.label, experience.reward, experience.shown.policy_version, experience.project_id
                )
            if resolution.withheld is None:
                self._metrics.experience.labels(experience.label).inc()
            else:
                self._metrics.withheld.labels(resolution.withheld).inc()
                log.info("experience withheld", outcome_id=row.outcome_id, reason=resolution.withheld)


def _is_over(row: OutcomeRow, patience: datetime) -> bool:
    return row.resolves_at is not None and row.resolves_at <= patience


def _first_settled(earlier: fim.FimPrompt | None, later_prompts: Sequence[str]) -> str | None:
    if earlier is None:
        return None
    for prompt in later_prompts:
        later = fim.parse(prompt)
        text = settled_text(earlier, later) if later else None
        if text is not None:
            return text
    return None


def _path_in(prompt: str) -> str:
    """The file that the prompt names; empty where it names none."""
    place = fim.parse(prompt)
    return (place.path or "") if place else ""


def _event_keys(row: OutcomeRow) -> list[str]:
    return [dedupe_key(row.key_id, row.client_completion_id, accepted) for accepted in (True, False)]


@dataclass(frozen=True, slots=True)
class Collected:
    """Everything that the ledger has about one final outcome."""

    row: OutcomeRow
    shown: Generation
    others: list[Generation]
    """Other choices of the same request of which nobody has said anything."""
    display: Display

    def display_with(self, *, already_labelled: bool) -> Display:
        """The display, where something has become known of its sample's other displays."""
        return replace(self.display, already_labelled=already_labelled)


async def collect(session: AsyncSession, due: Sequence[OutcomeRow], settled: Mapping[str, str]) -> list[Collected]:
    """What experience is made of, for each outcome. The generations are locked until the end of the transaction.

    `settled`: text that was found just now, by outcome id.
    """
    repository = Repository(session)
    ids = {row.generation_id for row in due}
    await lock_requests(session, ids)
    rows = await repository.lock_generations(ids)
    siblings = await repository.siblings(rows.values())
    choices = [one.generation_id for of_request in siblings.values() for one in of_request]
    by_itself, counted = await with_verdict(session, choices), await counted_as_siblings(session, choices)
    labelled = await repository.labelled(ids)
    paths = await repository.filepaths([key for row in due for key in _event_keys(row)])
    evidence = await evidence_of(session, due, settled)
    held = await quarantined(session, {row.key_id for row in due})
    collected = []
    for row in due:
        shown = rows[row.generation_id]
        others = [
            from_row(o) for o in siblings[shown.request_id] if o.generation_id not in {*by_itself, shown.generation_id}
        ]
        display = _display(
            row,
            filepath=paths.get(display_of(row)) or _path_in(shown.prompt),
            settled=settled.get(row.outcome_id) or (row.reference_text if row.reference_kind == "settled" else None),
            already_labelled=row.generation_id in labelled,
            counted=row.generation_id in counted,
            quarantined=row.key_id in held,
            evidence=evidence[row.outcome_id],
        )
        collected.append(Collected(row, from_row(shown), others, display))
    return collected


def _display(
    row: OutcomeRow,
    *,
    filepath: str,
    settled: str | None,
    already_labelled: bool,
    counted: bool,
    quarantined: bool,
    evidence: Evidence,
) -> Display:
    return Display(
        outcome_id=row.outcome_id,
        project_id=row.project_id,
        label="rejected" if row.state == "rejected" else "accepted",
        accepted_part=evidence.part,
        shown_text=row.shown_text,
        language=row.language,
        final_text=row.reference_text if row.reference_kind == "edited" else None,
        credited_tokens=row.credited_tokens,
        first_event_at=row.first_event_at,
        filepath=filepath,
        settled=settled,
        already_labelled=already_labelled,
        counted=counted,
        quarantined=quarantined,
        shown_again=bool(evidence.superseded),
        evidence=evidence,
    )


def _write(session: AsyncSession, row: OutcomeRow, resolution: Resolution, reward: NamedReward, now: datetime) -> None:
    experience = resolution.experience
    row.reward, row.resolved_at = experience.reward, now
    row.reward_name, row.reward_digest = reward.name, reward.digest
    if experience.reference is not None:
        row.reference_kind, row.reference_text = experience.reference.kind, experience.reference.text
    session.add(
        ExperienceRow(
            experience_id=experience.experience_id,
            outcome_id=row.outcome_id,
            generation_id=row.generation_id,
            project_id=row.project_id,
            key_id=row.key_id,
            policy_version=experience.shown.policy_version,
            label=experience.label,
            reward=experience.reward,
            feedback_at=experience.feedback_at,
            withheld=resolution.withheld,
            siblings=list(resolution.counted) or None,
        )
    )
    if resolution.withheld is None:
        session.add(
            OutboxRow(
                message_id=experience.experience_id,
                stream=STREAM_EXPERIENCE,
                payload=experience.model_dump_json().encode(),
            )
        )
