"""What to do now? Level-triggered: looks at what is committed, wanted and served, and closes the gap.

Killed at any moment, the next look does the rest: the storage's manifest, the rows and what the replicas say are all
that it goes by. Newest committed round → stored → wanted (unless another is pinned) → on each replica → live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog
from sqlalchemy import Engine

from services.publisher import repository
from services.publisher.announcing import Announcer
from services.publisher.loading import Attempt, Loader
from services.publisher.metrics import PublisherMetrics
from services.publisher.replicas import EngineRefused, Replica, version_of
from services.publisher.settings import PublisherSettings
from services.publisher.upload import ServingFolder, failed_row, upload
from shared.contracts.checkpoint import Probe
from shared.contracts.names import BASE_POLICY_VERSION
from shared.db.models import DeploymentRow, TrainingRoundRow
from shared.kit.clock import Clock, utc_now
from shared.kit.errors import InvalidMessage, SettingsError, TemporaryError
from shared.storage import CheckpointStore

log = structlog.get_logger()

Outcome = Literal["idle", "busy", "published", "waiting", "failed"]
OnReplica = Literal["in_place", "loaded", "away", "waiting", "failed"]


@dataclass(frozen=True)
class Wanted:
    """The version that should be served, and the one that is live now."""

    version: int
    live: int


class Rollout:
    """One per worker."""

    def __init__(
        self,
        *,
        settings: PublisherSettings,
        database: Engine,
        store: CheckpointStore,
        metrics: PublisherMetrics,
        announcer: Announcer | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._settings = settings
        self._database = database
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._serving = ServingFolder(store, Path(settings.serving_root), settings.engine_serving_root)
        self._loader = Loader(self._serving, metrics, probe_tolerance=settings.probe_tolerance, announcer=announcer)

    def reconcile(self) -> Outcome:
        """One look. Raises `TemporaryError` while the database is away."""
        with repository.only_publisher(self._database) as mine:
            if not mine:
                return "busy"
            stored = self._store_newest()
            outcome = self._deploy(self._wanted())
            if outcome == "failed":  # then something else is wanted: what was live before
                self._deploy(self._wanted())
            return outcome if stored or outcome != "idle" else "waiting"

    # --- the newest version into the storage ---

    def _store_newest(self) -> bool:
        """False where it could not be done now. A version that can never be stored is marked failed."""
        with repository.transaction(self._database) as session:
            newest = repository.newest_round(session)
            if newest is None or newest.version is None or repository.checkpoint(session, newest.version):
                return True
        try:
            self._upload(newest)
        except InvalidMessage as error:
            self._metrics.failures.labels(reason="upload").inc()
            with repository.transaction(self._database) as session:
                repository.uploaded(session, failed_row(newest, str(error), self._clock()))
            self._note_failed(newest.version, str(error))
        except (TemporaryError, SettingsError) as error:
            self._metrics.failures.labels(reason="upload").inc()
            log.warning("upload postponed", version=newest.version, reason=str(error))
            return False
        return True

    def _upload(self, newest: TrainingRoundRow) -> None:
        with self._metrics.stage_s.labels(stage="upload").time():
            row = upload(self._store, newest, Path(self._settings.checkpoint_root), self._clock())
        with repository.transaction(self._database) as session:
            repository.uploaded(session, row)
        self._metrics.bytes.inc(row.size_bytes)
        self._metrics.versions.labels(status="uploaded").inc()
        log.info("version stored", version=row.version, size_bytes=row.size_bytes)

    def _wanted(self) -> Wanted:
        """The pinned version, else the newest; the live one where that is failed or not stored yet."""
        with repository.transaction(self._database) as session:
            live = repository.live_version(session)
            pinned = repository.pin(session)
            newest = repository.newest_round(session)
            version = pinned if pinned is not None else (newest.version if newest else None) or BASE_POLICY_VERSION
            row = repository.checkpoint(session, version)
        self._metrics.pinned.set(pinned is not None)
        self._metrics.live_version.set(live)
        usable = version == BASE_POLICY_VERSION or (row is not None and row.status != "failed")
        return Wanted(version if usable else live, live)

    # --- a stored version onto the replicas ---

    def _deploy(self, wanted: Wanted) -> Outcome:
        results: list[OnReplica] = []
        for url in self._settings.engines:
            results.append(self._on_replica(url, wanted))
            if results[-1] == "failed":
                return "failed"
        if "waiting" in results or not {"in_place", "loaded"} & set(results):
            return "waiting"
        changed = self._make_live(wanted)
        if changed or "loaded" in results:
            return "published"
        return "waiting" if "away" in results else "idle"

    def _on_replica(self, url: str, wanted: Wanted) -> OnReplica:
        settings = self._settings
        with Replica(
            url,
            settings.served_model_name,
            admin_timeout_s=settings.admin_timeout_s,
            load_timeout_s=settings.load_timeout_s,
        ) as replica:
            try:
                label, paused = replica.label(), replica.paused()
                self._metrics.replica_version.labels(replica=replica.name).set(_number(version_of(label)))
                return self._bring(replica, version_of(label), paused, wanted)
            except (TemporaryError, EngineRefused) as error:
                self._metrics.failures.labels(reason="unreachable").inc()
                self._metrics.replica_version.labels(replica=replica.name).set(-1)
                log.warning("replica away", replica=replica.name, reason=str(error))
                return "away"

    def _bring(self, replica: Replica, served: int | None, paused: bool, wanted: Wanted) -> OnReplica:
        """A replica that somebody left paused is in an unknown state: it is loaded anew, which resumes it."""
        version = wanted.version
        with repository.transaction(self._database) as session:
            last = repository.last_deployment(session, replica.name)
            attempt = repository.last_attempt(session, replica.name, version)
        if served == version and not paused and _verified(last, version):
            return "in_place"
        if attempt is not None and attempt.status == "failed" and self._too_early(attempt):
            if paused:
                replica.resume()
            return "waiting"
        return self._load(replica, served, wanted)

    def _too_early(self, attempt: DeploymentRow) -> bool:
        return self._clock() < attempt.finished_at + timedelta(seconds=self._settings.retry_after_s)

    def _load(self, replica: Replica, served: int | None, wanted: Wanted) -> OnReplica:
        version = wanted.version
        try:
            probe = self._materialise(version)
        except InvalidMessage as error:
            return self._give_up(wanted, str(error))
        except (TemporaryError, SettingsError) as error:
            log.warning("version not to be had", version=version, reason=str(error))
            return "waiting"
        started_at = self._clock()
        attempt = self._loader.bring(replica, version, probe, self._fallbacks(served, wanted))
        self._record(replica, version, attempt, DeploymentRow(started_at=started_at))
        if attempt.error is None:
            return "loaded"
        if attempt.definite or self._attempts_used_up(version):
            return self._give_up(wanted, attempt.error)
        return "waiting"

    def _materialise(self, version: int) -> Probe | None:
        if version == BASE_POLICY_VERSION:
            return None
        try:
            with self._metrics.stage_s.labels(stage="materialise").time():
                return self._serving.fetch(version).probe
        except (InvalidMessage, TemporaryError, SettingsError):
            self._metrics.failures.labels(reason="materialise").inc()
            raise

    def _fallbacks(self, served: int | None, wanted: Wanted) -> Sequence[int]:
        """What to put back, best first: what it served, what is live, what was live before, the base."""
        with repository.transaction(self._database) as session:
            before = repository.predecessor(session, wanted.version)
        order = [served, wanted.live, before, BASE_POLICY_VERSION]
        return [version for version in dict.fromkeys(order) if version is not None and version != wanted.version]

    def _record(self, replica: Replica, version: int, attempt: Attempt, row: DeploymentRow) -> None:
        row.version, row.replica = version, replica.name
        row.status = "live" if attempt.error is None else "failed"
        row.rolled_back = attempt.restored is not None
        row.finished_at = self._clock()
        row.pause_s, row.max_logprob_diff, row.error = attempt.pause_s, attempt.max_logprob_diff, attempt.error
        with repository.transaction(self._database) as session:
            repository.deployed(session, row)
        served = version if attempt.error is None else attempt.restored
        self._metrics.replica_version.labels(replica=replica.name).set(_number(served))
        log.info(
            "replica loaded" if attempt.error is None else "load failed",
            replica=replica.name,
            version=version,
            pause_ms=round(attempt.pause_s * 1000),
            max_logprob_diff=attempt.max_logprob_diff,
            reason=attempt.error,
            restored=attempt.restored,
        )

    def _attempts_used_up(self, version: int) -> bool:
        with repository.transaction(self._database) as session:
            return repository.failed_attempts(session, version) >= self._settings.load_attempts

    def _give_up(self, wanted: Wanted, reason: str) -> OnReplica:
        """Never try this version again, unless it is the live one: that has been right before and is kept."""
        if wanted.version in (wanted.live, BASE_POLICY_VERSION):
            log.error("live version does not load", version=wanted.version, reason=reason)
            return "waiting"
        with repository.transaction(self._database) as session:
            repository.fail(session, wanted.version, reason)
        self._note_failed(wanted.version, reason)
        return "failed"

    def _note_failed(self, version: int, reason: str) -> None:
        self._metrics.versions.labels(status="failed").inc()
        log.error("version failed", version=version, reason=reason)

    def _make_live(self, wanted: Wanted) -> bool:
        """Whether it was not live before."""
        version = wanted.version
        with repository.transaction(self._database) as session:
            row = repository.checkpoint(session, version)
            first = row is not None and row.live_at is None
            newest = repository.newest_round(session)
            changed = repository.make_live(session, version, self._clock())
            before = repository.predecessor(session, version)
        if not changed:
            return False
        self._metrics.live_version.set(version)
        self._metrics.versions.labels(status="live").inc()
        if first and newest is not None and newest.version == version:
            self._metrics.publish_s.observe((self._clock() - newest.committed_at).total_seconds())
        self._serving.prune(self._settings.keep_versions, {version, before})
        log.info("version live", version=version, before=wanted.live)
        return True


def _verified(last: DeploymentRow | None, version: int) -> bool:
    """Whether the last that was done to a replica was to load this version successfully. The base is taken as it is."""
    if last is None:
        return version == BASE_POLICY_VERSION
    if version == BASE_POLICY_VERSION:
        return True
    return last.version == version and last.status == "live"


def _number(version: int | None) -> int:
    return -1 if version is None else version
