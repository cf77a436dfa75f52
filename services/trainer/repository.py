"""Every query of the trainer. Functions take a session; whoever opened it commits (`unit_of_work`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from services.trainer.tracker import Value
from shared.db.locks import only_one
from shared.db.models import CheckpointRow, TrainedExperienceRow, TrainingRoundRow, ValueTrackerRow

_LOCK: Final = 0x7AB_0001
"""Advisory lock of whoever runs a round."""


def only_trainer(engine: Engine) -> AbstractContextManager[bool]:
    """Whether no other trainer runs a round on this database; see `only_one`."""
    return only_one(engine, _LOCK)


def newest_round(session: Session) -> TrainingRoundRow | None:
    """The committed round with the newest checkpoint; None before the first."""
    return session.scalars(
        select(TrainingRoundRow)
        .where(TrainingRoundRow.version.is_not(None))
        .order_by(TrainingRoundRow.version.desc())
        .limit(1)
    ).first()


def committed_folders(session: Session) -> dict[str, int]:
    """Folder name → version of every committed checkpoint."""
    rows = session.execute(
        select(TrainingRoundRow.checkpoint, TrainingRoundRow.version).where(TrainingRoundRow.version.is_not(None))
    )
    return {folder: version for folder, version in rows if folder is not None and version is not None}


def round_of_checkpoint(session: Session, lineage: str) -> TrainingRoundRow | None:
    """The round by which a warm start's checkpoint was committed; None where it has not been."""
    wanted = TrainingRoundRow.stats["warmstart"]["checkpoint"].astext == lineage
    return session.scalars(select(TrainingRoundRow).where(wanted)).first()


def newest_uploaded(session: Session) -> int | None:
    """The newest version that the publisher has stored."""
    return session.scalar(select(func.max(CheckpointRow.version)))


def already_counted(session: Session, experience_ids: Collection[str]) -> set[str]:
    """Those that an earlier round has dealt with."""
    found = session.scalars(
        select(TrainedExperienceRow.experience_id).where(TrainedExperienceRow.experience_id.in_(experience_ids))
    )
    return set(found)


def insert_round(session: Session, row: TrainingRoundRow) -> None:
    """Raises `IntegrityError` where the version is taken."""
    session.add(row)
    session.flush()


def insert_dispositions(session: Session, round_id: str, dispositions: Mapping[str, str]) -> None:
    """Raises `IntegrityError` where one has counted already: the caller's transaction must not survive that."""
    if dispositions:
        session.execute(
            insert(TrainedExperienceRow),
            [
                {"experience_id": experience_id, "round_id": round_id, "disposition": disposition}
                for experience_id, disposition in dispositions.items()
            ],
        )


def tracker_values(session: Session, buckets: Iterable[str]) -> dict[str, Value]:
    """What the tracker knows of these buckets."""
    rows = session.scalars(select(ValueTrackerRow).where(ValueTrackerRow.bucket.in_(list(buckets))))
    return {row.bucket: Value(row.mean, row.weight) for row in rows}


def save_tracker_values(session: Session, values: Mapping[str, Value]) -> None:
    """Insert or overwrite."""
    if not values:
        return
    rows = [{"bucket": bucket, "mean": value.mean, "weight": value.weight} for bucket, value in values.items()]
    statement = upsert(ValueTrackerRow).values(rows)
    fresh = {"mean": statement.excluded.mean, "weight": statement.excluded.weight, "updated_at": func.now()}
    session.execute(statement.on_conflict_do_update(index_elements=["bucket"], set_=fresh))


def last_rounds(session: Session, limit: int) -> list[tuple[TrainingRoundRow, dict[str, int]]]:
    """The newest rounds first, each with its number of experiences by disposition."""
    rounds = session.scalars(select(TrainingRoundRow).order_by(TrainingRoundRow.committed_at.desc()).limit(limit)).all()
    counts: dict[str, dict[str, int]] = {row.round_id: {} for row in rounds}
    for round_id, disposition, count in session.execute(
        select(TrainedExperienceRow.round_id, TrainedExperienceRow.disposition, func.count())
        .where(TrainedExperienceRow.round_id.in_(counts))
        .group_by(TrainedExperienceRow.round_id, TrainedExperienceRow.disposition)
    ):
        counts[round_id][disposition] = count
    return [(row, counts[row.round_id]) for row in rounds]


def check_schema(session: Session) -> None:
    """Raises a database error where the tables are not there."""
    session.execute(text("SELECT round_id, version FROM training_rounds LIMIT 0"))
