"""Run the migrations from Python: for the command line, the containers and the tests alike."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config


def upgrade(database_url: str, revision: str = "head") -> None:
    """Bring the database to `revision`. Two at once are safe: PostgreSQL's DDL lock lets one wait."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["database_url"] = database_url
    command.upgrade(config, revision)
