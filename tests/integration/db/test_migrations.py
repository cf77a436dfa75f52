"""The migrations make exactly the tables that the models describe."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

import migrations
from deploy.local.embedded import EmbeddedPostgres
from migrations.__main__ import main
from migrations.upgrade import upgrade
from shared.db.models import Base


def test_no_difference_between_models_and_migrated_schema(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_upgrading_twice_changes_nothing(postgres_url: str) -> None:
    upgrade(postgres_url)


def test_what_was_stored_before_named_choices_goes_on_counting(postgres_server: EmbeddedPostgres) -> None:
    """Rows of 0002 survive, and an ingest of before can still write; going back deletes what it cannot hold."""
    postgres_server.create_database("older")
    url = postgres_server.url("older")
    upgrade(url, "0002")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(OLD_EVENT), {"key": "before"})
    upgrade(url)
    with engine.begin() as connection:
        connection.execute(text(OLD_EVENT), {"key": "meanwhile"})
        rows = connection.execute(text("SELECT kind, choice_index, accepted FROM feedback_events")).all()
        assert [tuple(row) for row in rows] == [("verdict", 0, True)] * 2
        connection.execute(text(NAMED_EVENT))
    downgrade(url, "0002")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM feedback_events")).scalar() == 2
    upgrade(url)
    engine.dispose()


def test_rewards_that_were_given_before_they_had_names_stay(postgres_server: EmbeddedPostgres) -> None:
    postgres_server.create_database("unnamed")
    url = postgres_server.url("unnamed")
    upgrade(url, "0003")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outcomes DROP CONSTRAINT outcomes_generation_id_fkey"))
        connection.execute(text(OLD_OUTCOME))
    for _ in range(2):
        upgrade(url, "0004")
        with engine.begin() as connection:
            row = connection.execute(text("SELECT reward, reward_name, reward_digest FROM outcomes")).one()
            assert tuple(row) == (0.75, None, None)
            connection.execute(text(REWARD))
        downgrade(url, "0003")
    engine.dispose()


def test_experience_outlives_its_outcome_from_0007_on(postgres_server: EmbeddedPostgres) -> None:
    """Going back deletes the experience that has none any more, and keeps the rest."""
    postgres_server.create_database("forgetting")
    url = postgres_server.url("forgetting")
    upgrade(url, "0007")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outcomes DROP CONSTRAINT outcomes_generation_id_fkey"))
        connection.execute(text(OLD_OUTCOME))
        for outcome in ("o", "gone"):
            connection.execute(text(EXPERIENCE), {"outcome": outcome})
    downgrade(url, "0005")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT outcome_id FROM experience")).scalars().all() == ["o"]
    upgrade(url, "0007")
    engine.dispose()


EXPERIENCE = """
    INSERT INTO experience (experience_id, outcome_id, generation_id, project_id, key_id, policy_version, label, reward,
        feedback_at)
    VALUES ('exp-' || :outcome, :outcome, 'g', 'p', 'k', 1, 'accepted', 0.75, now())"""


def test_a_part_that_the_version_before_does_not_know_becomes_one_that_it_knows(
    postgres_server: EmbeddedPostgres,
) -> None:
    postgres_server.create_database("parts")
    url = postgres_server.url("parts")
    upgrade(url, "0007")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outcomes DROP CONSTRAINT outcomes_generation_id_fkey"))
        connection.execute(text(OLD_OUTCOME))
    upgrade(url, "0008")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT language FROM outcomes")).scalar() is None
        connection.execute(text("UPDATE outcomes SET accepted_part = 'chars'"))
    downgrade(url, "0007")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT accepted_part FROM outcomes")).scalar() == "word"
    engine.dispose()


OLD_OUTCOME = """
    INSERT INTO outcomes (outcome_id, generation_id, key_id, project_id, client_completion_id, state, shown_text,
        credited_tokens, first_event_at, last_event_at, reward)
    VALUES ('o', 'g', 'k', 'p', 'c', 'accepted', 'a', 1, now(), now(), 0.75)"""
REWARD = """
    INSERT INTO rewards (outcome_id, reward_name, digest, reward, terms, computed_at)
    VALUES ('o', 'other', 'd', 1, '{"accepted": 1}', now())"""
OLD_EVENT = """
    INSERT INTO feedback_events (dedupe_key, source, project_id, key_id, client_completion_id, accepted, prompt_sha256,
        completion, filepath, cache_hit, received_at, evidence, next_attempt_at)
    VALUES (:key, 'rlinf', 'p', 'k', 'c', true, 'x', 'a', '', false, now(), '{}', now())"""
NAMED_EVENT = """
    INSERT INTO feedback_events (dedupe_key, source, kind, project_id, key_id, client_completion_id,
        named_generation_id, completion, filepath, cache_hit, received_at, evidence, next_attempt_at)
    VALUES ('n', 'tabby', 'view', 'p', 'k', 'c', 'cmpl-1', '', '', false, now(), '{}', now())"""


def downgrade(database_url: str, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["database_url"] = database_url
    command.downgrade(config, revision)


def test_an_unreachable_database_is_one_clear_sentence(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TABWISE_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert main() == 1
    assert "Check TABWISE_DATABASE_URL" in capsys.readouterr().err
