"""experience outlives the code that it was made of; keys that were forgotten

Revision ID: 0007
Revises: 0006

Loosens a constraint and adds a table alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

OUTCOME = "experience_outcome_id_fkey"


def upgrade() -> None:
    op.drop_constraint(OUTCOME, "experience", type_="foreignkey")
    op.create_table(
        "forgotten_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("versions", ARRAY(sa.Integer()), nullable=False),
        sa.PrimaryKeyConstraint("key_id"),
    )


def downgrade() -> None:
    """Deletes the experience whose code is gone, and forgets which keys were forgotten."""
    op.drop_table("forgotten_keys")
    op.execute("DELETE FROM experience e WHERE NOT EXISTS (SELECT FROM outcomes o WHERE o.outcome_id = e.outcome_id)")
    op.create_foreign_key(OUTCOME, "experience", "outcomes", ["outcome_id"], ["outcome_id"])
