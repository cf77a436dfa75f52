"""what acceptance is counted by, and what of the feedback is looked for by time

Revision ID: 0008
Revises: 0007

Adds a column and indexes alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

GENERATIONS, EVENTS, UNMATCHED = "ix_generations_time", "ix_feedback_events_time", "ix_feedback_events_unmatched"
FIGURES = ["generation_id", "request_id", "choice_index", "key_id", "project_id", "protocol", "policy_version"]


def upgrade() -> None:
    op.add_column("outcomes", sa.Column("language", sa.Text(), nullable=True))
    op.create_index(GENERATIONS, "generations", ["created_at"], postgresql_include=FIGURES)
    op.create_index(EVENTS, "feedback_events", ["received_at"], postgresql_using="brin")
    op.create_index(
        UNMATCHED, "feedback_events", ["key_id", "received_at"], postgresql_where=sa.text("status = 'unmatched'")
    )


def downgrade() -> None:
    """Forgets the languages; feedback of our own API stays as events, and goes on counting."""
    op.execute("UPDATE outcomes SET accepted_part = 'word' WHERE accepted_part = 'chars'")
    op.drop_index(UNMATCHED, "feedback_events")
    op.drop_index(EVENTS, "feedback_events")
    op.drop_index(GENERATIONS, "generations")
    op.drop_column("outcomes", "language")
