"""All tables. Who writes which: ingest the first five, trainer the rounds, publisher checkpoints and deployments."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Python type → column type, once for all tables."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        datetime: DateTime(timezone=True),
        float: Double,
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
        list[int]: ARRAY(Integer),
        list[str]: ARRAY(Text),
        list[float]: ARRAY(Double),
        bytes: LargeBinary,
    }


GENERATION_FIGURES = (
    "generation_id", "request_id", "choice_index", "key_id", "project_id", "protocol", "policy_version",
)  # fmt: skip
"""What acceptance is counted by: an index has it all, so that the rows, which hold code, need not be read."""


class GenerationRow(Base):
    """What the engine sampled; `shared.contracts.generation.Generation` as columns. By day: `shared.contracts.ids`."""

    __tablename__ = "generations"
    __table_args__ = (
        Index("ix_generations_join", "key_id", "prompt_sha256", "created_at"),
        Index("ix_generations_key_time", "key_id", "created_at"),
        Index("ix_generations_recorded", "recorded_at", "generation_id"),
        Index("ix_generations_time", "created_at", postgresql_include=GENERATION_FIGURES),
        {"postgresql_partition_by": "RANGE (generation_id)"},
    )

    generation_id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str]
    choice_index: Mapped[int]
    created_at: Mapped[datetime]
    key_id: Mapped[str]
    project_id: Mapped[str]
    protocol: Mapped[str]
    client_model: Mapped[str]
    replica: Mapped[str]
    prompt: Mapped[str]
    prompt_sha256: Mapped[bytes]
    """SHA-256 of the prompt in UTF-8, 32 bytes: what an event without an id of ours is joined by."""
    prompt_token_ids: Mapped[list[int]]
    text: Mapped[str]
    token_ids: Mapped[list[int]]
    logprobs: Mapped[list[float]]
    text_offsets: Mapped[list[int]]
    finish_reason: Mapped[str]
    stop_reason: Mapped[str | None]
    sampling: Mapped[dict[str, Any]]
    policy_version: Mapped[int]
    policy_spans: Mapped[list[dict[str, Any]]]
    client_gone: Mapped[bool]
    first_token_s: Mapped[float | None]
    total_s: Mapped[float]
    untrainable: Mapped[str | None]
    recorded_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FeedbackEventRow(Base):
    """One accepted HTTP event, stored before it is answered. `dedupe_key` makes a repeat a no-op."""

    __tablename__ = "feedback_events"
    __table_args__ = (
        Index("ix_feedback_events_status", "status", "next_attempt_at"),
        Index("ix_feedback_events_time", "received_at", postgresql_using="brin"),
        Index("ix_feedback_events_unmatched", "key_id", "received_at", postgresql_where=text("status = 'unmatched'")),
        Index("ix_feedback_events_outcome", "outcome_id", postgresql_where=text("outcome_id IS NOT NULL")),
    )

    event_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    source: Mapped[str]
    """`continue`, `rlinf`, `tabby`, or `tabwise`: our own."""
    kind: Mapped[str] = mapped_column(server_default="verdict")
    """`verdict` where the client sends a verdict alone, whatever made it; `view`, `select` or `dismiss` of Tabby's
    plugins; `feedback`: by our own API, so a person's."""
    select_kind: Mapped[str | None]
    """`line`, `word` or `chars`: which part was accepted. None: all of it, or nothing."""
    project_id: Mapped[str]
    key_id: Mapped[str]
    client_completion_id: Mapped[str]
    """The display, as the client tells displays apart."""
    named_generation_id: Mapped[str | None]
    """The generation that the client named; None where it knows no id of ours."""
    choice_index: Mapped[int] = mapped_column(server_default="0")
    """The choice that the client named; 0 where it names none."""
    accepted: Mapped[bool | None]
    """None: it was displayed, and that is all that the event says."""
    prompt_sha256: Mapped[bytes | None]
    """What it is joined by where the client names no generation."""
    rendered_sha256: Mapped[bytes | None]
    """SHA-256 of the prompt that the gateway would have made of the client's prefix and suffix."""
    completion: Mapped[str]
    """The text that the editor displayed; empty where the client names a generation instead."""
    filepath: Mapped[str]
    cache_hit: Mapped[bool]
    display_ms: Mapped[float | None]
    client_time: Mapped[datetime | None]
    received_at: Mapped[datetime]
    evidence: Mapped[dict[str, Any]]
    """The client's other fields (ids, model name, debounce …); never prompt, prefix or suffix again."""
    status: Mapped[str] = mapped_column(server_default="pending")
    """`pending` → `joined` | `unmatched` | `ambiguous`."""
    status_reason: Mapped[str | None]
    next_attempt_at: Mapped[datetime]
    generation_id: Mapped[str | None]
    outcome_id: Mapped[str | None]


class OutcomeRow(Base):
    """What became of one choice of one display. One row per (key, client completion id, choice named)."""

    __tablename__ = "outcomes"
    __table_args__ = (
        UniqueConstraint("key_id", "client_completion_id", "choice_index"),
        Index("ix_outcomes_resolve", "resolved_at", "resolves_at"),
        Index("ix_outcomes_generation", "generation_id"),
        Index("ix_outcomes_first_event", "first_event_at"),
    )

    outcome_id: Mapped[str] = mapped_column(primary_key=True)
    generation_id: Mapped[str] = mapped_column(ForeignKey("generations.generation_id"))
    key_id: Mapped[str]
    project_id: Mapped[str]
    client_completion_id: Mapped[str]
    choice_index: Mapped[int] = mapped_column(server_default="0")
    """The choice that the client named; 0 where it names none."""
    source: Mapped[str | None]
    """Format of the event that opened it; None in rows from before there were several kinds."""
    state: Mapped[str]
    """`shown` | `accepted` | `rejected`: the latest word of the client."""
    accepted_part: Mapped[str | None]
    """`line`, `word` or `chars` (as many as `shown_text` has): only this much was accepted."""
    language: Mapped[str | None]
    """`unknown` where nobody tells; None in rows from before it was kept."""
    shown_text: Mapped[str]
    """What was displayed; of a partial accept the part that was accepted."""
    credited_tokens: Mapped[int]
    first_event_at: Mapped[datetime]
    last_event_at: Mapped[datetime]
    resolves_at: Mapped[datetime | None]
    """From then on it is final (a late accept may still overrule a reject before). None: nothing is decided yet."""
    resolved_at: Mapped[datetime | None]
    reward: Mapped[float | None]
    """As it was given at resolution; never recomputed in place (`rewards`)."""
    reward_name: Mapped[str | None]
    """Which reward gave it; None where it was resolved before rewards had names."""
    reward_digest: Mapped[str | None]
    """Of that reward's numbers: `reward_definitions`."""
    reference_kind: Mapped[str | None]
    reference_text: Mapped[str | None]


class RewardDefinitionRow(Base):
    """The numbers behind a digest, written with the first reward that they gave."""

    __tablename__ = "reward_definitions"

    digest: Mapped[str] = mapped_column(primary_key=True)
    weights: Mapped[dict[str, Any]]
    first_used_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RewardRow(Base):
    """What another reward makes of an outcome's evidence: one per name, beside the one given at resolution."""

    __tablename__ = "rewards"

    outcome_id: Mapped[str] = mapped_column(ForeignKey("outcomes.outcome_id", ondelete="CASCADE"), primary_key=True)
    reward_name: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    reward: Mapped[float]
    terms: Mapped[dict[str, Any]]
    """Name of the term → what it added."""
    computed_at: Mapped[datetime]


class RewardReplayRow(Base):
    """How far a replay that stores its rewards has come, so that it goes on where it was stopped."""

    __tablename__ = "reward_replays"

    replay_id: Mapped[str] = mapped_column(primary_key=True)
    """Digest of what was asked for."""
    reward_name: Mapped[str]
    until: Mapped[datetime]
    """Outcomes that were resolved later are another replay's."""
    cursor_at: Mapped[datetime]
    cursor_id: Mapped[str]
    """The last outcome that is done, by time of resolution and id."""
    figures: Mapped[dict[str, Any]]
    finished_at: Mapped[datetime | None]


class ExperienceRow(Base):
    """One resolved outcome that was handed to the trainer, or why it was not."""

    __tablename__ = "experience"

    experience_id: Mapped[str] = mapped_column(primary_key=True)
    outcome_id: Mapped[str] = mapped_column(unique=True)
    """The outcome may be gone: experience holds no code and is kept longer."""
    generation_id: Mapped[str]
    project_id: Mapped[str]
    key_id: Mapped[str]
    policy_version: Mapped[int]
    label: Mapped[str]
    reward: Mapped[float]
    feedback_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    withheld: Mapped[str | None]
    """Why it was not sent to the trainer (`no_logprobs`, …), else None."""
    siblings: Mapped[list[str] | None]
    """Generations that it hands over with a reward, as siblings: they have counted. None: none."""


class QuarantineRow(Base):
    """A key of whose feedback nothing is learned, or was not for a while: one row per key, its latest quarantine."""

    __tablename__ = "quarantined_keys"

    key_id: Mapped[str] = mapped_column(primary_key=True)
    rule: Mapped[str]
    """What it did that nobody can: `services.ingest.patterns.Rule`."""
    evidence: Mapped[dict[str, Any]]
    """The figures, and the limits that they were held against."""
    since: Mapped[datetime]
    released_at: Mapped[datetime | None]
    """By an operator; None while it is in quarantine."""


class OutboxRow(Base):
    """A message that must reach a stream, written in the same transaction as what it tells of."""

    __tablename__ = "outbox"
    __table_args__ = (Index("ix_outbox_unsent", "sent_at", "outbox_id"),)

    outbox_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    message_id: Mapped[str] = mapped_column(unique=True)
    stream: Mapped[str]
    payload: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    sent_at: Mapped[datetime | None]


class ForgottenKeyRow(Base):
    """A key whose data was deleted on request, and what cannot be told any more without it."""

    __tablename__ = "forgotten_keys"

    key_id: Mapped[str] = mapped_column(primary_key=True)
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]
    rows: Mapped[int] = mapped_column(BigInteger)
    """Deleted in all."""
    versions: Mapped[list[int]]
    """Policy versions that learned from it."""


class TrainingRoundRow(Base):
    """One committed round: the checkpoint exists and contains exactly the experience listed for it."""

    __tablename__ = "training_rounds"

    round_id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int | None] = mapped_column(Integer, unique=True)
    """None where no step changed anything: all was put aside or held back, and there is no checkpoint."""
    parent_version: Mapped[int]
    checkpoint: Mapped[str | None]
    """Folder name below the checkpoint root."""
    started_at: Mapped[datetime]
    committed_at: Mapped[datetime]
    minibatches: Mapped[int]
    trained: Mapped[int]
    stats: Mapped[dict[str, Any]]


MOVED_WEIGHTS = ("trained", "trained_stale")
"""Dispositions of experience that the weights have learned from."""


class TrainedExperienceRow(Base):
    """The proof that an experience counted once: its primary key. Also those that were looked at and not trained."""

    __tablename__ = "trained_experience"

    experience_id: Mapped[str] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("training_rounds.round_id"), index=True)
    disposition: Mapped[str]
    """One of `MOVED_WEIGHTS`, or why not: `stale`, `no_signal`, `invalid`, `logprob_gap` (`non_finite` in old rows)."""


class CheckpointRow(Base):
    """A committed version on its way through the publisher."""

    __tablename__ = "checkpoints"

    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    parent_version: Mapped[int]
    uri: Mapped[str]
    """Prefix of the version in the storage."""
    manifest_sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str]
    """`uploaded` → `live` → `retired`; or `failed`."""
    error: Mapped[str | None]
    uploaded_at: Mapped[datetime]
    live_at: Mapped[datetime | None]


class DeploymentRow(Base):
    """One attempt to load one version on one replica."""

    __tablename__ = "deployments"
    __table_args__ = (Index("ix_deployments_replica", "replica", "finished_at"),)

    deployment_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    version: Mapped[int]
    replica: Mapped[str]
    status: Mapped[str]
    """`live` or `failed`."""
    rolled_back: Mapped[bool] = mapped_column(Boolean, default=False)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]
    pause_s: Mapped[float]
    """Time between the answers to pause and resume: what a user could have felt."""
    max_logprob_diff: Mapped[float | None]
    error: Mapped[str | None]


class ValueTrackerRow(Base):
    """Decayed mean reward per project × language × length bucket: the baseline of lone completions. Trainer's."""

    __tablename__ = "value_trackers"

    bucket: Mapped[str] = mapped_column(primary_key=True)
    """`project/language/length`."""
    mean: Mapped[float]
    weight: Mapped[float]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class PolicyPinRow(Base):
    """At most one row: the version that an operator wants served, whatever is trained meanwhile. Publisher's."""

    __tablename__ = "policy_pins"

    pin_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """Always 1."""
    version: Mapped[int]
    pinned_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ObservationRow(Base):
    """What a later request showed of a completion's place. Never changed; never changes an experience."""

    __tablename__ = "observations"
    __table_args__ = (
        Index(
            "ix_observations_generation",
            "generation_id",
            "kind",
            "after_s",
            unique=True,
            postgresql_where=text("outcome_id IS NULL"),
        ),
        Index(
            "ix_observations_outcome",
            "outcome_id",
            "kind",
            "after_s",
            unique=True,
            postgresql_where=text("outcome_id IS NOT NULL"),
        ),
        Index("ix_observations_key", "key_id"),
    )

    observation_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    generation_id: Mapped[str]
    outcome_id: Mapped[str | None]
    """The display; None where it is about the generation, displayed or not."""
    key_id: Mapped[str]
    project_id: Mapped[str]
    kind: Mapped[str]
    """`settled`, of a generation; `retention` or `typed_out`, of a display."""
    after_s: Mapped[int] = mapped_column(server_default="0")
    """Of a retention: at which age."""
    value: Mapped[float]
    """`settled`: similarity of the completion to it; `retention`: share that is still there; `typed_out`: 1 or 0."""
    text: Mapped[str | None]
    """`settled`: what the developer wrote."""
    observed_at: Mapped[datetime]
    """When the request was made that shows it."""
    recorded_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SettlingCursorRow(Base):
    """How far one look of the settling loop has come."""

    __tablename__ = "settling_cursors"

    name: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    last_id: Mapped[str]
