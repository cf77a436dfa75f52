"""What one run gave, and what must hold of it: pure functions of what was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.developer.evaluation import EvaluationReport
from clients.developer.report import FailedCompletion, FailedEvent, TeamReport, percentile
from demo.ledger import Publish, Snapshot, Verdict, Version

LEAST_JOIN_RATE = 0.99
LEAST_PUBLISHES = 2


@dataclass(frozen=True)
class RunResult:
    """Everything that is known of one run."""

    seed: int
    folder: Path
    team: TeamReport
    end: Snapshot
    verdicts: list[Verdict]
    publishes: list[Publish]
    versions: list[Version]
    versions_served: set[int]
    """Versions that recorded completions were sampled from."""
    feedback_to_served_s: list[float]
    dispositions: dict[str, int]
    before: EvaluationReport
    after: EvaluationReport
    peak_rss_mb: float
    seconds: float = 0.0
    """The whole run, start and stop included."""

    @property
    def failed_completions(self) -> int:
        """Completions that failed without the editor's doing, at any time."""
        return len(self.team.failed)

    @property
    def failed_during_publishes(self) -> int:
        """Of those: between the beginning and the end of a publish."""
        windows = [(publish.started_at.timestamp(), publish.finished_at.timestamp()) for publish in self.publishes]
        return sum(any(begin <= failure.at <= end for begin, end in windows) for failure in self.team.failed)

    @property
    def duplicated(self) -> int:
        """Experience that the rounds counted more often than once."""
        return self.end.experience_counted - self.end.experience_trained

    @property
    def reward_thirds(self) -> tuple[float, float]:
        """Mean reward of the first and of the last third of the displays."""
        rewards = [verdict.reward for verdict in self.verdicts]
        third = len(rewards) // 3
        return (statistics.fmean(rewards[:third]), statistics.fmean(rewards[-third:])) if third else (0.0, 0.0)

    @property
    def reward_gain(self) -> float:
        """Last third less first third."""
        first, last = self.reward_thirds
        return last - first

    @property
    def evaluation_gain(self) -> float:
        """Mean reward on the fixed evaluation set, after less before."""
        return (self.after.mean_reward or 0.0) - (self.before.mean_reward or 0.0)


def broken_promises(result: RunResult) -> list[str]:
    """One sentence for each invariant that does not hold; empty when all do."""
    team, end = result.team, result.end
    checks = [
        (not team.failed, f"{len(team.failed)} completions failed{_first(team.failed)}"),
        (not team.events_failed, f"{len(team.events_failed)} feedback events were refused{_first(team.events_failed)}"),
        (
            team.events_sent == end.events_stored == end.events_resolved,
            f"{team.events_sent} feedback events were sent, {end.events_stored} are stored and "
            f"{end.events_resolved} resolved",
        ),
        (
            (end.join_rate or 0) >= LEAST_JOIN_RATE,
            f"only {end.join_rate or 0:.1%} of the feedback could be joined to a generation",
        ),
        (
            end.experience_sent == end.experience_done,
            f"{end.experience_sent} experiences went to the trainer and {end.experience_done} were acknowledged",
        ),
        (result.duplicated == 0, f"{result.duplicated} experiences were trained more than once"),
        (end.failed_publishes == 0, f"{end.failed_publishes} publishes failed"),
        (len(result.publishes) >= LEAST_PUBLISHES, f"only {len(result.publishes)} versions were published"),
        (
            end.live_version == end.newest_version,
            f"version {end.live_version} is served, but {end.newest_version} is the newest",
        ),
    ]
    return [f"seed {result.seed}: {sentence}" for holds, sentence in checks if not holds]


def figures(results: Sequence[RunResult]) -> dict[str, float]:
    """The figures over all runs: counts are summed, rates and seconds pooled, the peak is the highest."""
    delays = [seconds for result in results for seconds in result.feedback_to_served_s]
    settled = sum(result.end.events_stored - result.end.events_pending for result in results)
    joined = sum(result.end.events_joined for result in results)
    values: dict[str, float | None] = {
        "failed_completions": sum(result.failed_completions for result in results),
        "failed_completions_during_publishes": sum(result.failed_during_publishes for result in results),
        "reward_gain": statistics.fmean(result.reward_gain for result in results),
        "evaluation_reward_gain": statistics.fmean(result.evaluation_gain for result in results),
        "seeds_improved": sum(result.reward_gain > 0 for result in results),
        "seeds": len(results),
        "events_sent": sum(result.team.events_sent for result in results),
        "events_stored": sum(result.end.events_stored for result in results),
        "events_resolved": sum(result.end.events_resolved for result in results),
        "experience_trained": sum(result.end.experience_trained for result in results),
        "experience_duplicated": sum(result.duplicated for result in results),
        "feedback_to_served_p50_s": percentile(delays, 50),
        "feedback_to_served_p95_s": percentile(delays, 95),
        "join_rate": joined / settled if settled else None,
        "versions_published": sum(len({publish.version for publish in result.publishes}) for result in results),
        "peak_rss_mb": max(result.peak_rss_mb for result in results),
        "wall_s": sum(result.seconds for result in results),
    }
    return {name: _rounded(value) for name, value in values.items() if value is not None}


def json_lines(values: dict[str, float]) -> Iterable[str]:
    """One line per figure."""
    for name, value in values.items():
        yield json.dumps({"bench": "loop", "figure": name, "ours": value}, separators=(",", ":"))


def _first(failures: Sequence[FailedCompletion | FailedEvent]) -> str:
    """What the first one was answered, for a sentence."""
    return f" (the first: {failures[0].status or 'no answer'} {failures[0].detail})" if failures else ""


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)
