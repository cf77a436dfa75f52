"""`python -m migrations`: upgrade the database of `TABWISE_DATABASE_URL` to the newest schema."""

from __future__ import annotations

import sys

from sqlalchemy.exc import OperationalError

from migrations.upgrade import upgrade
from shared.kit.settings import ServiceSettings


class MigrationSettings(ServiceSettings):
    """Only where the database is."""

    database_url: str = "postgresql+psycopg://tabwise@127.0.0.1:5432/tabwise"


def main() -> int:
    """Exit status 0 when the schema is the newest."""
    settings = MigrationSettings()
    try:
        upgrade(settings.database_url)
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        print(f"The database cannot be reached: {reason}. Check TABWISE_DATABASE_URL.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
