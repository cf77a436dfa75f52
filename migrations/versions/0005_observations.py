"""what later requests show of a completion's place, and how far the looking has come

Revision ID: 0005
Revises: 0004

Adds tables and an index alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "observations",
        sa.Column("observation_id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("generation_id", sa.Text(), nullable=False),
        sa.Column("outcome_id", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("after_s", sa.Integer(), server_default="0", nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("observation_id"),
    )
    for subject, null in (("generation", "IS NULL"), ("outcome", "IS NOT NULL")):
        op.create_index(
            f"ix_observations_{subject}",
            "observations",
            [f"{subject}_id", "kind", "after_s"],
            unique=True,
            postgresql_where=sa.text(f"outcome_id {null}"),
        )
    op.create_index("ix_observations_key", "observations", ["key_id"])
    op.create_table(
        "settling_cursors",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("ix_generations_recorded", "generations", ["recorded_at", "generation_id"])


def downgrade() -> None:
    """Forgets what was observed, and the outcomes of silent clients, which the version before does not know."""
    op.execute("DELETE FROM experience WHERE outcome_id IN (SELECT outcome_id FROM outcomes WHERE state = 'settled')")
    op.execute("DELETE FROM outcomes WHERE state = 'settled'")
    op.drop_index("ix_generations_recorded", "generations")
    op.drop_table("settling_cursors")
    op.drop_table("observations")
