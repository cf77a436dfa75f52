"""Every query of the publisher. Functions take a session; whoever opened it commits (`unit_of_work`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Final

from sqlalchemy import Engine, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from shared.contracts.names import BASE_POLICY_VERSION
from shared.db.engine import unit_of_work
from shared.db.locks import only_one
from shared.db.models import CheckpointRow, DeploymentRow, PolicyPinRow, TrainingRoundRow
from shared.kit.errors import TemporaryError

_LOCK: Final = 0x7AB_0002
"""Advisory lock of whoever reconciles."""
_PIN: Final = 1


def only_publisher(engine: Engine) -> AbstractContextManager[bool]:
    """Whether no other publisher reconciles with this database; see `only_one`."""
    return only_one(engine, _LOCK)


@contextmanager
def transaction(engine: Engine) -> Iterator[Session]:
    """`unit_of_work`, the database's absence as `TemporaryError`."""
    try:
        with unit_of_work(engine) as session:
            yield session
    except DBAPIError as error:
        if not (error.connection_invalidated or _is_absence(error)):
            raise
        raise TemporaryError(f"database: {type(error.orig).__name__}") from error


def _is_absence(error: DBAPIError) -> bool:
    """SQLSTATE class 08 (connection) or 57P (server going down), or none at all."""
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


def newest_round(session: Session) -> TrainingRoundRow | None:
    """The committed round with the newest checkpoint; None before the first."""
    return session.scalars(
        select(TrainingRoundRow)
        .where(TrainingRoundRow.version.is_not(None))
        .order_by(TrainingRoundRow.version.desc())
        .limit(1)
    ).first()


def checkpoint(session: Session, version: int) -> CheckpointRow | None:
    """None where it was never uploaded."""
    return session.get(CheckpointRow, version)


def live_version(session: Session) -> int:
    """The base version before the first."""
    return (
        session.scalar(select(func.max(CheckpointRow.version)).where(CheckpointRow.status == "live"))
        or BASE_POLICY_VERSION
    )


def uploaded(session: Session, row: CheckpointRow) -> None:
    """Insert, or overwrite what an earlier try left."""
    session.merge(row)


def fail(session: Session, version: int, reason: str) -> None:
    """Never tried again by itself."""
    session.execute(update(CheckpointRow).where(CheckpointRow.version == version).values(status="failed", error=reason))


def make_live(session: Session, version: int, now: datetime) -> bool:
    """This one and no other; whether anything changed. Version 0 has no row: all others are retired."""
    retired = session.execute(
        update(CheckpointRow)
        .where(CheckpointRow.status == "live", CheckpointRow.version != version)
        .values(status="retired")
        .returning(CheckpointRow.version)
    ).all()
    made = session.execute(
        update(CheckpointRow)
        .where(CheckpointRow.version == version, CheckpointRow.status != "live")
        .values(status="live", live_at=now, error=None)
        .returning(CheckpointRow.version)
    ).all()
    return bool(retired or made)


def deployed(session: Session, row: DeploymentRow) -> None:
    """One attempt, whatever came of it."""
    session.add(row)


def last_deployment(session: Session, replica: str) -> DeploymentRow | None:
    """The latest attempt on this replica."""
    return session.scalars(
        select(DeploymentRow)
        .where(DeploymentRow.replica == replica)
        .order_by(DeploymentRow.deployment_id.desc())
        .limit(1)
    ).first()


def last_attempt(session: Session, replica: str, version: int) -> DeploymentRow | None:
    """The latest attempt to load this version there."""
    return session.scalars(
        select(DeploymentRow)
        .where(DeploymentRow.replica == replica, DeploymentRow.version == version)
        .order_by(DeploymentRow.deployment_id.desc())
        .limit(1)
    ).first()


def failed_attempts(session: Session, version: int) -> int:
    """On all replicas together."""
    found = session.scalar(
        select(func.count()).where(DeploymentRow.version == version, DeploymentRow.status == "failed")
    )
    return found or 0


def predecessor(session: Session, version: int) -> int:
    """The version that was live before this one became so; the base where none was."""
    live = (CheckpointRow.live_at.is_not(None), CheckpointRow.version != version, CheckpointRow.status != "failed")
    found = session.scalar(select(CheckpointRow.version).where(*live).order_by(CheckpointRow.live_at.desc()).limit(1))
    return found or BASE_POLICY_VERSION


def pin(session: Session) -> int | None:
    """The version that an operator wants; None: the newest."""
    row = session.get(PolicyPinRow, _PIN)
    return None if row is None else row.version


def set_pin(session: Session, version: int) -> None:
    """Replaces an earlier one."""
    statement = upsert(PolicyPinRow).values(pin_id=_PIN, version=version)
    values = {"version": statement.excluded.version, "pinned_at": func.now()}
    session.execute(statement.on_conflict_do_update(index_elements=["pin_id"], set_=values))


def remove_pin(session: Session) -> int | None:
    """Returns the version that was pinned."""
    return session.scalar(delete(PolicyPinRow).returning(PolicyPinRow.version))


def all_checkpoints(session: Session) -> Sequence[CheckpointRow]:
    """Newest first."""
    return session.scalars(select(CheckpointRow).order_by(CheckpointRow.version.desc())).all()


def deployments_of(session: Session, version: int) -> Sequence[DeploymentRow]:
    """Oldest first."""
    return session.scalars(
        select(DeploymentRow).where(DeploymentRow.version == version).order_by(DeploymentRow.deployment_id)
    ).all()


def check_schema(session: Session) -> None:
    """Raises a database error where the tables are not there."""
    session.execute(text("SELECT version FROM policy_pins LIMIT 0"))
