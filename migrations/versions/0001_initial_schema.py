"""initial schema

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("parent_version", sa.Integer(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("live_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("version"),
    )
    op.create_table(
        "deployments",
        sa.Column("deployment_id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("rolled_back", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pause_s", sa.Double(), nullable=False),
        sa.Column("max_logprob_diff", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("deployment_id"),
    )
    op.create_index("ix_deployments_replica", "deployments", ["replica", "finished_at"], unique=False)
    op.create_table(
        "feedback_events",
        sa.Column("event_id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("client_completion_id", sa.Text(), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("prompt_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=False),
        sa.Column("filepath", sa.Text(), nullable=False),
        sa.Column("cache_hit", sa.Boolean(), nullable=False),
        sa.Column("display_ms", sa.Double(), nullable=True),
        sa.Column("client_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("generation_id", sa.Text(), nullable=True),
        sa.Column("outcome_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("event_id"),
        sa.UniqueConstraint("dedupe_key"),
    )
    op.create_index("ix_feedback_events_status", "feedback_events", ["status", "next_attempt_at"], unique=False)
    op.create_table(
        "generations",
        sa.Column("generation_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("choice_index", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("client_model", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("prompt_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("prompt_token_ids", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("token_ids", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("logprobs", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("text_offsets", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("sampling", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("policy_spans", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("client_gone", sa.Boolean(), nullable=False),
        sa.Column("first_token_s", sa.Double(), nullable=True),
        sa.Column("total_s", sa.Double(), nullable=False),
        sa.Column("untrainable", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("generation_id"),
    )
    op.create_index("ix_generations_join", "generations", ["key_id", "prompt_sha256", "created_at"], unique=False)
    op.create_index("ix_generations_key_time", "generations", ["key_id", "created_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("outbox_id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("outbox_id"),
        sa.UniqueConstraint("message_id"),
    )
    op.create_index("ix_outbox_unsent", "outbox", ["sent_at", "outbox_id"], unique=False)
    op.create_table(
        "training_rounds",
        sa.Column("round_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("parent_version", sa.Integer(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("minibatches", sa.Integer(), nullable=False),
        sa.Column("trained", sa.Integer(), nullable=False),
        sa.Column("stats", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("round_id"),
        sa.UniqueConstraint("version"),
    )
    op.create_table(
        "value_trackers",
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("bucket"),
    )
    op.create_table(
        "outcomes",
        sa.Column("outcome_id", sa.Text(), nullable=False),
        sa.Column("generation_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("client_completion_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("shown_text", sa.Text(), nullable=False),
        sa.Column("credited_tokens", sa.Integer(), nullable=False),
        sa.Column("first_event_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_event_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolves_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("reference_kind", sa.Text(), nullable=True),
        sa.Column("reference_text", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["generation_id"],
            ["generations.generation_id"],
        ),
        sa.PrimaryKeyConstraint("outcome_id"),
        sa.UniqueConstraint("key_id", "client_completion_id"),
    )
    op.create_index("ix_outcomes_generation", "outcomes", ["generation_id"], unique=False)
    op.create_index("ix_outcomes_resolve", "outcomes", ["resolved_at", "resolves_at"], unique=False)
    op.create_table(
        "trained_experience",
        sa.Column("experience_id", sa.Text(), nullable=False),
        sa.Column("round_id", sa.Text(), nullable=False),
        sa.Column("disposition", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["round_id"],
            ["training_rounds.round_id"],
        ),
        sa.PrimaryKeyConstraint("experience_id"),
    )
    op.create_index(op.f("ix_trained_experience_round_id"), "trained_experience", ["round_id"], unique=False)
    op.create_table(
        "experience",
        sa.Column("experience_id", sa.Text(), nullable=False),
        sa.Column("outcome_id", sa.Text(), nullable=False),
        sa.Column("generation_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("feedback_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("withheld", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["outcome_id"],
            ["outcomes.outcome_id"],
        ),
        sa.PrimaryKeyConstraint("experience_id"),
        sa.UniqueConstraint("outcome_id"),
    )


def downgrade() -> None:
    op.drop_table("experience")
    op.drop_index(op.f("ix_trained_experience_round_id"), table_name="trained_experience")
    op.drop_table("trained_experience")
    op.drop_index("ix_outcomes_resolve", table_name="outcomes")
    op.drop_index("ix_outcomes_generation", table_name="outcomes")
    op.drop_table("outcomes")
    op.drop_table("value_trackers")
    op.drop_table("training_rounds")
    op.drop_index("ix_outbox_unsent", table_name="outbox")
    op.drop_table("outbox")
    op.drop_index("ix_generations_key_time", table_name="generations")
    op.drop_index("ix_generations_join", table_name="generations")
    op.drop_table("generations")
    op.drop_index("ix_feedback_events_status", table_name="feedback_events")
    op.drop_table("feedback_events")
    op.drop_index("ix_deployments_replica", table_name="deployments")
    op.drop_table("deployments")
    op.drop_table("checkpoints")
