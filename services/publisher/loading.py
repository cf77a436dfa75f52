"""One version onto one replica: pause, load in place, resume, verify; on any failure back to what served before.

A user's requests are held for the length of the pause and none is lost. The replica is resumed whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from services.publisher.announcing import Announcer, NoAnnouncer
from services.publisher.metrics import PublisherMetrics
from services.publisher.probe import max_difference
from services.publisher.replicas import EngineRefused, Replica
from services.publisher.upload import ServingFolder
from shared.contracts.checkpoint import Probe
from shared.contracts.names import BASE_POLICY_VERSION
from shared.kit.errors import TabwiseError, TemporaryError

log = structlog.get_logger()


@dataclass
class Attempt:
    """What came of it. `error` None: the replica serves the version, verified."""

    pause_s: float = 0.0
    max_logprob_diff: float | None = None
    error: str | None = None
    definite: bool = False
    """The version itself is at fault: trying again cannot help."""
    restored: int | None = None
    """The version that was put back."""


class Loader:
    """Loads versions that are in the serving folder already."""

    def __init__(
        self,
        serving: ServingFolder,
        metrics: PublisherMetrics,
        *,
        probe_tolerance: float,
        announcer: Announcer | None = None,
    ) -> None:
        """`announcer` None: nobody needs to know which replica is held."""
        self._serving = serving
        self._announcer = announcer or NoAnnouncer()
        self._metrics = metrics
        self._tolerance = probe_tolerance

    def bring(self, replica: Replica, version: int, probe: Probe | None, fallbacks: Sequence[int]) -> Attempt:
        """Load `version` and verify it by `probe` (None: the base model, which has none).

        Raises `TemporaryError` where the replica could not even be paused.
        """
        attempt = Attempt()
        with self._held(replica, attempt):
            self._load(replica, version, attempt)
            if attempt.error is not None:
                self._restore(replica, fallbacks, attempt)
        if attempt.error is None and probe is not None:
            self._verify(replica, probe, attempt)
            if attempt.error is not None:
                self._go_back(replica, fallbacks, attempt)
        return attempt

    @contextmanager
    def _held(self, replica: Replica, attempt: Attempt) -> Iterator[None]:
        """Generation is paused inside the block, and the gateways know. A failed resume becomes the attempt's error."""
        with self._announcer.draining(replica.url), self._paused(replica, attempt):
            yield

    @contextmanager
    def _paused(self, replica: Replica, attempt: Attempt) -> Iterator[None]:
        try:
            replica.pause()
        except TabwiseError as error:
            with suppress(TabwiseError):
                replica.resume()
            raise TemporaryError(f"{replica.name} could not be paused: {error}") from error
        began = time.perf_counter()
        try:
            yield
        finally:
            try:
                replica.resume()
            except TabwiseError as error:
                attempt.error = attempt.error or str(error)
            pause_s = time.perf_counter() - began
            attempt.pause_s += pause_s
            self._metrics.pause_s.observe(pause_s)

    def _load(self, replica: Replica, version: int, attempt: Attempt) -> None:
        with self._noted(attempt, "refused"), self._metrics.stage_s.labels(stage="load").time():
            self._swap(replica, version)

    def _swap(self, replica: Replica, version: int) -> None:
        """The label is set after the weights: while generation is held nothing is stamped."""
        replica.load(None if version == BASE_POLICY_VERSION else self._serving.path_for_engine(version))
        replica.set_version(version)
        replica.reset_prefix_cache()

    def _verify(self, replica: Replica, probe: Probe, attempt: Attempt) -> None:
        with self._noted(attempt, "probe"), self._metrics.stage_s.labels(stage="verify").time():
            difference = max_difference(probe.logprobs, replica.probe(probe.token_ids))
            attempt.max_logprob_diff = difference
            self._metrics.probe_diff.observe(difference)
            if difference > self._tolerance:
                raise EngineRefused(
                    f"the probe's logprobs differ by {difference:.4g} from the learner's, more than {self._tolerance:g}"
                )

    def _go_back(self, replica: Replica, fallbacks: Sequence[int], attempt: Attempt) -> None:
        with suppress(TemporaryError), self._held(replica, attempt):
            self._restore(replica, fallbacks, attempt)

    def _restore(self, replica: Replica, fallbacks: Sequence[int], attempt: Attempt) -> None:
        """The first of `fallbacks` that loads. Where none does, it is the engine that is at fault, not the version."""
        for version in fallbacks:
            try:
                if version != BASE_POLICY_VERSION:
                    self._serving.fetch(version)
                self._swap(replica, version)
            except TabwiseError as error:
                log.error("rollback failed", replica=replica.name, version=version, reason=str(error))
                continue
            attempt.restored = version
            self._metrics.rollbacks.inc()
            return
        attempt.definite = False

    @contextmanager
    def _noted(self, attempt: Attempt, reason: str) -> Iterator[None]:
        """A refusal is definite; no answer may have any cause."""
        try:
            yield
        except EngineRefused as error:
            attempt.error, attempt.definite = str(error), True
            self._metrics.failures.labels(reason=reason).inc()
        except TemporaryError as error:
            attempt.error = str(error)
            self._metrics.failures.labels(reason="no_answer").inc()
