"""keys of whose feedback nothing is learned

Revision ID: 0006
Revises: 0005

Adds a table and an index alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

OUTCOME_INDEX = "ix_outcomes_first_event"


def upgrade() -> None:
    op.create_table(
        "quarantined_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("evidence", JSONB(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_index(OUTCOME_INDEX, "outcomes", ["first_event_at"])


def downgrade() -> None:
    """Forgets who is in quarantine; what was withheld stays withheld."""
    op.drop_index(OUTCOME_INDEX, "outcomes")
    op.drop_table("quarantined_keys")
