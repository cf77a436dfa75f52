"""What a team of simulated developers did: counted while it runs, and as a report at the end.

In: answers, displays and deliveries. Out: ``TeamProgress`` at any time, ``TeamReport`` at the end. No user code in
either: a record holds lengths and a similarity.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from clients.developer.continue_client import Answer
from clients.developer.feedback import Delivery
from clients.developer.stream import CompletionFailure
from clients.developer.wire import FeedbackFormat

StopReason = Literal["events", "seconds", "stopped", "failures"]
_RECENT = 100


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One feedback event that the server stored (2xx), in the order of the answers."""

    index: int
    """0-based."""
    at: float
    """Seconds since the epoch at which it was sent."""
    since_start_s: float
    completion_id: str
    developer: str
    persona: str
    form: FeedbackFormat
    accepted: bool
    second: bool
    """A late Tab: this display was reported as rejected before."""
    similarity: float
    """Of the shown text to the rest of the line that the developer had in mind, 0 to 1."""
    shown_chars: int
    wanted_chars: int


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """A feedback event without a 2xx answer; it was not sent again."""

    at: float
    developer: str
    status: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class FailedCompletion:
    """A completion that failed without the editor's doing."""

    at: float
    developer: str
    kind: str
    status: int | None
    detail: str
    after_s: float


@dataclass(frozen=True, slots=True)
class TeamProgress:
    """A snapshot while the team works. Counts as in ``TeamReport``."""

    elapsed_s: float
    requests: int
    shown: int
    empty: int
    accepted: int
    rejected: int
    cancelled: int
    failed: int
    events_sent: int
    events_failed: int
    undecided: int
    recent_acceptance: float | None
    """Share of accepted among the last 100 stored events."""


@dataclass(slots=True)
class TeamReport:
    """The whole run. ``shown = accepted + rejected + unreported``; ``accepted`` and ``rejected`` count displays."""

    started_at: float
    seed: int
    developers: int
    speed: float
    style: str
    wall_s: float = 0.0
    stopped_because: StopReason = "stopped"
    requests: int = 0
    """Completion requests over HTTP."""
    reused: int = 0
    """Answers read on from an earlier request, because the developer had typed what it said."""
    shown: int = 0
    empty: int = 0
    cancelled: int = 0
    """Not there before the developer's patience ended."""
    accepted: int = 0
    rejected: int = 0
    unreported: int = 0
    """Displays without an event: replaced within half a second, or continued by a later display."""
    late_accepted: int = 0
    """Of the accepted: with a rejection reported before."""
    events_sent: int = 0
    """Feedback events answered 2xx."""
    events_failed: list[FailedEvent] = field(default_factory=list)
    failed: list[FailedCompletion] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    """From request to shown."""

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted displays of all displays."""
        return self.accepted / self.shown if self.shown else None

    def summary(self) -> dict[str, Any]:
        """The figures without the records, for one line of JSON."""
        figures = {name: value for name, value in asdict(self).items() if not isinstance(value, list)}
        return figures | {
            "acceptance_rate": self.acceptance_rate,
            "events_failed": len(self.events_failed),
            "failed": len(self.failed),
            "first_token_p50_s": percentile(self.first_token_s, 50),
            "first_token_p95_s": percentile(self.first_token_s, 95),
            "total_p50_s": percentile(self.total_s, 50),
            "total_p95_s": percentile(self.total_s, 95),
        }

    def to_json(self) -> bytes:
        """Everything, records included."""
        return orjson.dumps(asdict(self) | {"acceptance_rate": self.acceptance_rate})


@dataclass(slots=True)
class _Display:
    developer: str
    persona: str
    form: FeedbackFormat
    similarity: float
    wanted_chars: int
    decided: bool | None = None


class Tally:
    """Counts for all developers of one team."""

    def __init__(self, report: TeamReport) -> None:
        self.report = report
        self.failures_in_a_row = 0
        self._displays: dict[str, _Display] = {}
        self._recent: deque[bool] = deque(maxlen=_RECENT)
        self._started = time.monotonic()

    def answered(self, answer: Answer) -> None:
        """An answer to one moment, shown or not."""
        report = self.report
        report.reused += answer.reused
        report.requests += not answer.reused
        report.empty += answer.kind == "empty"
        report.cancelled += answer.kind == "cancelled"
        if answer.kind in ("shown", "empty"):
            self.failures_in_a_row = 0
        if answer.first_token_s is not None and not answer.reused:
            report.first_token_s.append(answer.first_token_s)
        if answer.total_s is not None and not answer.reused:
            report.total_s.append(answer.total_s)

    def displayed(
        self, completion_id: str, developer: str, persona: str, form: FeedbackFormat, similarity: float, wanted: str
    ) -> None:
        """A suggestion is on the screen."""
        self.report.shown += 1
        self._displays[completion_id] = _Display(developer, persona, form, similarity, len(wanted))

    def broke(self, developer: str, failure: CompletionFailure) -> None:
        """A completion failed."""
        self.failures_in_a_row += 1
        self.report.failed.append(
            FailedCompletion(failure.at, developer, failure.kind, failure.status, failure.detail, failure.after_s)
        )

    def delivered(self, delivery: Delivery) -> None:
        """An event got its answer, or none."""
        display = self._displays[delivery.outcome.completion_id]
        second = delivery.accepted and display.decided is False
        display.decided = display.decided or delivery.accepted
        if not delivery.stored:
            self.report.events_failed.append(
                FailedEvent(delivery.sent_at, display.developer, delivery.status, delivery.detail)
            )
            return
        self._recent.append(delivery.accepted)
        self.report.events.append(self._record(delivery, display, second))
        self.report.events_sent += 1

    def progress(self, undecided: int) -> TeamProgress:
        """The counts so far."""
        report = self.settle()
        return TeamProgress(
            elapsed_s=report.wall_s,
            requests=report.requests,
            shown=report.shown,
            empty=report.empty,
            accepted=report.accepted,
            rejected=report.rejected,
            cancelled=report.cancelled,
            failed=len(report.failed),
            events_sent=report.events_sent,
            events_failed=len(report.events_failed),
            undecided=undecided,
            recent_acceptance=sum(self._recent) / len(self._recent) if self._recent else None,
        )

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._started

    def settle(self) -> TeamReport:
        """Brings the counts of displays and the clock of the report up to date."""
        report = self.report
        report.wall_s = self.elapsed_s
        report.accepted = sum(d.decided is True for d in self._displays.values())
        report.rejected = sum(d.decided is False for d in self._displays.values())
        report.unreported = report.shown - report.accepted - report.rejected
        report.late_accepted = sum(e.second for e in report.events)
        return report

    def _record(self, delivery: Delivery, display: _Display, second: bool) -> EventRecord:
        return EventRecord(
            index=len(self.report.events),
            at=delivery.sent_at,
            since_start_s=delivery.sent_at - self.report.started_at,
            completion_id=delivery.outcome.completion_id,
            developer=display.developer,
            persona=display.persona,
            form=display.form,
            accepted=delivery.accepted,
            second=second,
            similarity=display.similarity,
            shown_chars=len(delivery.outcome.completion),
            wanted_chars=display.wanted_chars,
        )


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest-rank percentile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
