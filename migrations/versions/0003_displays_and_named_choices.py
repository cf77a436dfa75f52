"""events may name a generation, show it without a verdict, or accept a part of it

Revision ID: 0003
Revises: 0002

Adds columns and loosens constraints alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ONE_ROW_PER_DISPLAY = "outcomes_key_id_client_completion_id_key"
ONE_ROW_PER_CHOICE = "outcomes_key_id_client_completion_id_choice_index_key"


def upgrade() -> None:
    op.add_column("feedback_events", sa.Column("kind", sa.Text(), server_default="verdict", nullable=False))
    op.add_column("feedback_events", sa.Column("select_kind", sa.Text(), nullable=True))
    op.add_column("feedback_events", sa.Column("named_generation_id", sa.Text(), nullable=True))
    op.add_column("feedback_events", sa.Column("choice_index", sa.Integer(), server_default="0", nullable=False))
    op.add_column("feedback_events", sa.Column("rendered_sha256", sa.LargeBinary(), nullable=True))
    op.alter_column("feedback_events", "accepted", existing_type=sa.Boolean(), nullable=True)
    op.alter_column("feedback_events", "prompt_sha256", existing_type=sa.LargeBinary(), nullable=True)
    op.add_column("outcomes", sa.Column("choice_index", sa.Integer(), server_default="0", nullable=False))
    op.add_column("outcomes", sa.Column("source", sa.Text(), nullable=True))
    op.add_column("outcomes", sa.Column("accepted_part", sa.Text(), nullable=True))
    op.alter_column("outcomes", "resolves_at", existing_type=sa.DateTime(timezone=True), nullable=True)
    op.create_unique_constraint(ONE_ROW_PER_CHOICE, "outcomes", ["key_id", "client_completion_id", "choice_index"])
    op.drop_constraint(ONE_ROW_PER_DISPLAY, "outcomes", type_="unique")


def downgrade() -> None:
    """Deletes what the older tables cannot hold: events that name a generation, and their outcomes."""
    named = "SELECT outcome_id FROM feedback_events WHERE named_generation_id IS NOT NULL AND outcome_id IS NOT NULL"
    op.execute(f"DELETE FROM experience WHERE outcome_id IN ({named})")
    op.execute(f"DELETE FROM outcomes WHERE outcome_id IN ({named})")
    op.execute("DELETE FROM feedback_events WHERE named_generation_id IS NOT NULL")
    op.create_unique_constraint(ONE_ROW_PER_DISPLAY, "outcomes", ["key_id", "client_completion_id"])
    op.drop_constraint(ONE_ROW_PER_CHOICE, "outcomes", type_="unique")
    op.alter_column("outcomes", "resolves_at", existing_type=sa.DateTime(timezone=True), nullable=False)
    op.drop_column("outcomes", "accepted_part")
    op.drop_column("outcomes", "source")
    op.drop_column("outcomes", "choice_index")
    op.alter_column("feedback_events", "prompt_sha256", existing_type=sa.LargeBinary(), nullable=False)
    op.alter_column("feedback_events", "accepted", existing_type=sa.Boolean(), nullable=False)
    op.drop_column("feedback_events", "rendered_sha256")
    op.drop_column("feedback_events", "choice_index")
    op.drop_column("feedback_events", "named_generation_id")
    op.drop_column("feedback_events", "select_kind")
    op.drop_column("feedback_events", "kind")
