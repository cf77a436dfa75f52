"""which choices of a request have counted as another one's siblings

Revision ID: 0009
Revises: 0008

Adds a column alone, so that an ingest of the version before goes on working meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experience", sa.Column("siblings", sa.ARRAY(sa.Text()), nullable=True))


def downgrade() -> None:
    op.drop_column("experience", "siblings")
