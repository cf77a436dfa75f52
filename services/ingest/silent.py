"""An outcome for clients that send no events (llama.vim): what was suggested was written in its place. Pure.

Whether by a key of acceptance or by hand cannot be told apart; that the text was right is known in both cases. Where
something else was written nothing is said: a missing event is no reject.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from services.ingest.outcomes import SETTLED
from services.ingest.rows import stop_string
from services.ingest.seen import Seen
from services.ingest.settled import written_lines
from services.ingest.shown import credited_tokens, locate
from shared.db.models import GenerationRow, OutcomeRow


def settled_outcome(row: GenerationRow, seen: Seen, now: datetime) -> OutcomeRow | None:
    """None where not even the first suggested line was written."""
    shown = _first_lines(row.text, written_lines(seen.text, row.text))
    span = locate(row.text, shown)
    if not shown.strip() or span is None:
        return None
    return OutcomeRow(
        outcome_id=uuid.uuid4().hex,
        generation_id=row.generation_id,
        key_id=row.key_id,
        project_id=row.project_id,
        client_completion_id=f"{SETTLED}:{row.generation_id}",
        choice_index=row.choice_index,
        source=SETTLED,
        state=SETTLED,
        shown_text=shown,
        credited_tokens=credited_tokens(_Sampled(row), span),
        first_event_at=seen.at,
        last_event_at=seen.at,
        resolves_at=now,
        reference_kind=SETTLED,
        reference_text=seen.text,
    )


class _Sampled:
    """A generation's row as the credit of tokens sees it."""

    def __init__(self, row: GenerationRow) -> None:
        self.text, self.token_ids, self.text_offsets = row.text, row.token_ids, row.text_offsets
        self.finish_reason = row.finish_reason
        self.stop_string = stop_string(row.stop_reason, row.sampling)


def _first_lines(text: str, count: int) -> str:
    """`text` up to the end of its `count`-th line that is not blank."""
    taken: list[str] = []
    for line in text.split("\n"):
        if count == 0:
            break
        taken.append(line)
        count -= bool(line.strip())
    return "\n".join(taken)
