"""The migrations make exactly the tables that the models describe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

import migrations
from deploy.local.embedded import EmbeddedPostgres
from migrations.__main__ import main
from migrations.upgrade import upgrade
from shared.contracts.ids import new_request_id
from shared.db.models import Base


def test_no_difference_between_models_and_migrated_schema(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_no_part})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def is_no_part(found: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Not a day's table of generations, nor the foreign key by which PostgreSQL looks into it."""
    tables = [one.target_fullname for one in found.elements] if kind == "foreign_key_constraint" else [name or ""]
    return not any(table.startswith("generations_") for table in tables if kind in ("table", "foreign_key_constraint"))


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


def test_all_generations_are_there_when_they_are_kept_by_day_and_afterwards(postgres_server: EmbeddedPostgres) -> None:
    """With and without outcomes, with ids of before and of a gateway that was upgraded first; there and back."""
    postgres_server.create_database("by_day")
    url = postgres_server.url("by_day")
    upgrade(url, "0009")
    engine = create_engine(url)
    old = [f"cmpl-{number:032x}" for number in range(0, 2**128, 2**124)]
    timed = new_request_id(datetime.now(UTC))
    far = new_request_id(datetime.now(UTC) + timedelta(days=300))
    everything = "SELECT generation_id, prompt, recorded_at FROM generations ORDER BY generation_id"
    with engine.begin() as connection:
        for generation_id in [*old, timed, far]:
            connection.execute(text(GENERATION), {"id": generation_id})
        for generation_id in (old[3], timed):
            connection.execute(
                text(OLD_OUTCOME.replace("'o', 'g', 'k'", "'o' || :id, :id, :id")), {"id": generation_id}
            )
        before = connection.execute(text(everything)).all()
    for _ in range(2):
        upgrade(url, "0010")
        with engine.begin() as connection:
            assert connection.execute(text(everything)).all() == before
            found = "SELECT generation_id FROM generations WHERE tableoid = CAST(:part AS regclass) ORDER BY 1"
            for part, ids in {"generations_untimed": old, "generations_other": [far]}.items():
                assert connection.scalars(text(found), {"part": part}).all() == ids
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text("DELETE FROM generations WHERE generation_id = :id"), {"id": timed})
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text(GENERATION), {"id": old[0]})
        downgrade(url, "0009")
        with engine.begin() as connection:
            assert connection.execute(text(everything)).all() == before
    engine.dispose()


GENERATION = """
    INSERT INTO generations (generation_id, request_id, choice_index, created_at, key_id, project_id, protocol,
        client_model, replica, prompt, prompt_sha256, prompt_token_ids, text, token_ids, logprobs, text_offsets,
        finish_reason, sampling, policy_version, policy_spans, client_gone, total_s)
    VALUES (:id, :id, 0, now(), 'k', 'p', 'openai', 'm', 'r', 'of ' || :id, 'x', '{1}', 'a', '{1}', '{-0.5}', '{0}',
        'stop', '{}', 1, '[]', false, 0.2)"""
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
