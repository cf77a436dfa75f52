"""Outcome rows as the pure state machine sees them, and back. No I/O."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import get_args

from services.ingest.joining import Joined
from services.ingest.languages import UNKNOWN, language_at
from services.ingest.outcomes import Change, Part, State, Verdict, Word, after_event
from services.ingest.shown import credited_tokens_of_part, first_part
from services.ingest.told import accepted_chars, final_text, named_language
from shared.db.models import FeedbackEventRow, OutcomeRow
from shared.keys import DEFAULT_PROJECT

DisplayKey = tuple[str, str]
"""key_id, client completion id."""
Choices = dict[int, OutcomeRow]
"""The outcomes of one display, by the choice that the client named."""


def display_of(row: FeedbackEventRow | OutcomeRow) -> DisplayKey:
    """Which display an event or an outcome belongs to."""
    return row.key_id, row.client_completion_id


def listen(choices: Choices, event: FeedbackEventRow, window: timedelta) -> tuple[dict[int, State], Change]:
    """What one more event changes in the outcomes of its display."""
    states = {choice: _state(row) for choice, row in choices.items()}
    return after_event(states, _word(event), window)


def new_outcome(event: FeedbackEventRow, joined: Joined, state: State) -> OutcomeRow:
    """The row that `event` opens."""
    project_id = event.project_id
    if project_id == DEFAULT_PROJECT:  # the client named none: what it told the gateway counts
        project_id = joined.candidate.project_id
    row = OutcomeRow(
        outcome_id=uuid.uuid4().hex,
        generation_id=joined.candidate.generation_id,
        key_id=event.key_id,
        project_id=project_id,
        client_completion_id=event.client_completion_id,
        choice_index=event.choice_index,
        source=event.source,
        first_event_at=event.received_at,
        last_event_at=event.received_at,
    )
    set_state(row, state)
    set_shown(row, event, joined)
    set_told(row, event, joined)
    return row


def set_state(row: OutcomeRow, state: State) -> None:
    """Write what events change."""
    row.state, row.resolves_at, row.accepted_part = state.verdict, state.resolves_at, state.part


def set_shown(row: OutcomeRow, event: FeedbackEventRow, joined: Joined) -> None:
    """Write which text the outcome is about, and the tokens behind it."""
    if event.named_generation_id is None:
        row.shown_text, row.credited_tokens = event.completion, joined.credited_tokens
        return
    generation, part = joined.candidate, part_of(row.accepted_part)
    if part is None:
        row.shown_text, row.credited_tokens = generation.text, joined.credited_tokens
    else:
        chars = accepted_chars(event)
        row.shown_text = generation.text[:chars] if part == "chars" else first_part(generation.text, part)
        row.credited_tokens = credited_tokens_of_part(generation, row.shown_text)


def set_told(row: OutcomeRow, event: FeedbackEventRow, joined: Joined | None) -> None:
    """Write what an event says besides its verdict, while the outcome is open."""
    if row.language in (None, UNKNOWN):
        prompt = joined.candidate.prompt if joined else ""
        row.language = language_at(named_language(event), event.filepath, prompt)
    text = final_text(event)
    if text is not None and row.resolved_at is None:
        row.reference_kind, row.reference_text = "edited", text


def mark_joined(event: FeedbackEventRow, outcome: OutcomeRow) -> None:
    """The event and the outcome know of each other."""
    outcome.first_event_at = min(outcome.first_event_at, event.received_at)
    outcome.last_event_at = max(outcome.last_event_at, event.received_at)
    event.status, event.status_reason = "joined", None
    event.project_id = outcome.project_id
    event.generation_id, event.outcome_id = outcome.generation_id, outcome.outcome_id


def part_of(stored: str | None) -> Part | None:
    """A part as a row holds it."""
    return next((part for part in get_args(Part) if part == stored), None)


def _state(row: OutcomeRow) -> State:
    verdict: Verdict = next(known for known in get_args(Verdict) if known == row.state)
    part = part_of(row.accepted_part)
    chars = len(row.shown_text) if part == "chars" else 0
    return State(verdict, row.resolves_at, part, row.resolved_at is not None, chars)


def _word(event: FeedbackEventRow) -> Word:
    verdict: Verdict = "shown" if event.accepted is None else "accepted" if event.accepted else "rejected"
    part = part_of(event.select_kind)
    chars = accepted_chars(event) if part == "chars" else 0
    return Word(verdict, event.received_at, event.choice_index, part, chars)
