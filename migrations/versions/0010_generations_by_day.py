"""generations by day, so that a day is dropped and not deleted row by row

Revision ID: 0010
Revises: 0009

The table as it is becomes the part of the ids that do not tell their time; no row is moved or rewritten, but all are
read once, to see that they belong there. Ids of a newer gateway that are there already go to their own day's part.
Whoever writes waits that long; an ingest of the version before then goes on working.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIMED = "cmpl-t"
DAYS_AHEAD = 7
FIGURES = "generation_id, request_id, choice_index, key_id, project_id, protocol, policy_version"
INDEXES = {
    "ix_generations_join": "(key_id, prompt_sha256, created_at)",
    "ix_generations_key_time": "(key_id, created_at)",
    "ix_generations_recorded": "(recorded_at, generation_id)",
    "ix_generations_time": f"(created_at) INCLUDE ({FIGURES})",
}
FOREIGN_KEY = "outcomes_generation_id_fkey"


def upgrade() -> None:
    op.drop_constraint(FOREIGN_KEY, "outcomes", type_="foreignkey")
    _set_aside("generations_untimed", "untimed_")
    op.execute(
        "CREATE TABLE generations (LIKE generations_untimed INCLUDING DEFAULTS) PARTITION BY RANGE (generation_id)"
    )
    _keys()
    op.execute("CREATE TABLE generations_other PARTITION OF generations DEFAULT")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in (today + timedelta(days=number) for number in range(-1, DAYS_AHEAD + 1)):
        op.execute(
            f"CREATE TABLE generations_{day:%Y%m%d} PARTITION OF generations "
            f"FOR VALUES FROM ('{_first_id(day)}') TO ('{_first_id(day + timedelta(days=1))}')"
        )
    op.execute(
        f"WITH timed AS (DELETE FROM generations_untimed WHERE generation_id >= '{TIMED}' RETURNING *) "
        "INSERT INTO generations SELECT * FROM timed"
    )
    op.execute(
        f"ALTER TABLE generations ATTACH PARTITION generations_untimed FOR VALUES FROM (MINVALUE) TO ('{TIMED}')"
    )
    _foreign_key()


def downgrade() -> None:
    """All rows are written again, into one table."""
    op.drop_constraint(FOREIGN_KEY, "outcomes", type_="foreignkey")
    _set_aside("generations_parted", "parted_")
    op.execute("CREATE TABLE generations (LIKE generations_parted INCLUDING DEFAULTS)")
    op.execute("INSERT INTO generations SELECT * FROM generations_parted")
    op.execute("DROP TABLE generations_parted")
    _keys()
    _foreign_key()


def _set_aside(name: str, prefix: str) -> None:
    op.execute(f"ALTER TABLE generations RENAME TO {name}")
    for index in ("generations_pkey", *INDEXES):
        op.execute(f"ALTER INDEX {index} RENAME TO {prefix}{index}")


def _keys() -> None:
    op.create_primary_key("generations_pkey", "generations", ["generation_id"])
    for name, columns in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON generations {columns}")


def _foreign_key() -> None:
    op.create_foreign_key(FOREIGN_KEY, "outcomes", "generations", ["generation_id"], ["generation_id"])


def _first_id(moment: datetime) -> str:
    return f"{TIMED}{int(moment.timestamp() * 1000):012x}"
