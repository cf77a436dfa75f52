"""which reward gave a reward, and what others make of the same evidence

Revision ID: 0004
Revises: 0003

Adds columns, tables and an index alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

OUTCOME_INDEX = "ix_feedback_events_outcome"


def upgrade() -> None:
    op.add_column("outcomes", sa.Column("reward_name", sa.Text(), nullable=True))
    op.add_column("outcomes", sa.Column("reward_digest", sa.Text(), nullable=True))
    op.create_index(OUTCOME_INDEX, "feedback_events", ["outcome_id"], postgresql_where="outcome_id IS NOT NULL")
    op.create_table(
        "reward_definitions",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("weights", JSONB(), nullable=False),
        sa.Column("first_used_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "rewards",
        sa.Column("outcome_id", sa.Text(), nullable=False),
        sa.Column("reward_name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("terms", JSONB(), nullable=False),
        sa.Column("computed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["outcome_id"], ["outcomes.outcome_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("outcome_id", "reward_name"),
    )
    op.create_table(
        "reward_replays",
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("reward_name", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cursor_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cursor_id", sa.Text(), nullable=False),
        sa.Column("figures", JSONB(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("replay_id"),
    )


def downgrade() -> None:
    """Forgets the replays; the rewards given at resolution stay."""
    op.drop_table("reward_replays")
    op.drop_table("rewards")
    op.drop_table("reward_definitions")
    op.drop_index(OUTCOME_INDEX, "feedback_events")
    op.drop_column("outcomes", "reward_digest")
    op.drop_column("outcomes", "reward_name")
