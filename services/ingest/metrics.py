"""Every metric of ingest, each with its meaning. Labels are bounded: no client chooses an unlimited number of them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

VERSIONS_KEPT = 20
PROJECTS_KEPT = 50
SHARE_BUCKETS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0)
JOIN_DELAY_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class IngestMetrics:
    """One attribute per metric; made once per process with its own registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._projects: set[str] = set()
        self._versions: set[int] = set()
        self.requests = Counter(
            "tabwise_ingest_requests", "HTTP answers of the feedback routes", ["route", "status"], registry=registry
        )
        self.refused = Counter(
            "tabwise_ingest_refused", "Feedback answered 4xx or 5xx, by error code", ["code"], registry=registry
        )
        self.events = Counter(
            "tabwise_ingest_events", "Feedback events committed", ["source", "verdict"], registry=registry
        )
        self.repeated = Counter(
            "tabwise_ingest_events_repeated", "Events that were stored already", ["source"], registry=registry
        )
        self.ignored = Counter(
            "tabwise_ingest_events_ignored", "Events answered 204 and not stored", ["reason"], registry=registry
        )
        self.commit_s = Histogram(
            "tabwise_ingest_commit_seconds", "From a parsed event to its commit", registry=registry
        )
        self.generations = Counter(
            "tabwise_ingest_generations_recorded", "Generations taken from the stream and committed", registry=registry
        )
        self.quarantined = Counter(
            "tabwise_ingest_keys_quarantined",
            "Keys put into quarantine, by the rule they broke",
            ["rule"],
            registry=registry,
        )
        self.keys_in_quarantine = Gauge(
            "tabwise_ingest_keys_in_quarantine", "Keys of whose feedback nothing is learned now", registry=registry
        )
        self.erased = Counter(
            "tabwise_ingest_rows_expired", "Rows deleted because their time was over", ["table"], registry=registry
        )
        self.secrets = Counter(
            "tabwise_ingest_secrets_redacted",
            "Generations stored without a secret of this kind",
            ["kind"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "tabwise_ingest_dead_letters", "Stream entries put aside", ["reason"], registry=registry
        )
        self.dead_letters_waiting = Gauge(
            "tabwise_ingest_dead_letters_waiting",
            "Dead letters that nobody has requeued or dropped (both streams: the trainer's too)",
            ["stream"],
            registry=registry,
        )
        self.joins = Counter(
            "tabwise_ingest_joins",
            "Events by what the joiner made of them (joined, ambiguous, unmatched)",
            ["result", "reason"],
            registry=registry,
        )
        self.join_delay_s = Histogram(
            "tabwise_ingest_join_delay_seconds",
            "From receiving an event to its join",
            buckets=JOIN_DELAY_BUCKETS_S,
            registry=registry,
        )
        self.revived = Counter(
            "tabwise_ingest_events_revived",
            "Unmatched events that are tried again, because generations of their key arrived late",
            registry=registry,
        )
        self.outcome_changes = Counter(
            "tabwise_ingest_outcome_changes",
            "What events did to outcomes (opened, decided, overruled, too_late, none)",
            ["change"],
            registry=registry,
        )
        self.displays = Counter(
            "tabwise_ingest_displays",
            "Resolved displays: the inputs of the acceptance rate",
            ["label", "policy_version", "project"],
            registry=registry,
        )
        self.reward_sum = Gauge(
            "tabwise_ingest_reward_sum",
            "Sum of the rewards of resolved displays; over their number it is the mean",
            ["policy_version", "project"],
            registry=registry,
        )
        self.resolved = Counter(
            "tabwise_ingest_resolved",
            "Resolved displays of all versions. For rates: a new version's series would lose its beginning",
            ["label"],
            registry=registry,
        )
        self.resolved_reward = Counter(
            "tabwise_ingest_resolved_reward",
            "Their rewards; positive less negative is the sum. Prometheus takes a falling sum for a restart",
            ["sign"],
            registry=registry,
        )
        for label in ("accepted", "rejected"):
            self.resolved.labels(label)
        for sign in ("positive", "negative"):
            self.resolved_reward.labels(sign)
        self.experience = Counter(
            "tabwise_ingest_experience", "Experience handed to the trainer", ["label"], registry=registry
        )
        self.withheld = Counter(
            "tabwise_ingest_experience_withheld", "Experience not handed to the trainer", ["reason"], registry=registry
        )
        self.settled = Counter(
            "tabwise_ingest_settled",
            "Resolved rejects by whether it is known what was typed instead",
            ["found"],
            registry=registry,
        )
        self.observed_settled = Counter(
            "tabwise_ingest_observed_settled",
            "Generations by whether it was seen later what was written in their place",
            ["found"],
            registry=registry,
        )
        self.retention = Histogram(
            "tabwise_ingest_retention_share",
            "Share of accepted text that is still there, by seconds after the accept",
            ["after_s"],
            buckets=SHARE_BUCKETS,
            registry=registry,
        )
        self.retention_unknown = Counter(
            "tabwise_ingest_retention_unknown",
            "Accepts of which no later request showed the place until then",
            ["after_s"],
            registry=registry,
        )
        self.typed_out = Counter(
            "tabwise_ingest_typed_out",
            "Rejects of which it is known what was written, by whether it was what had been suggested",
            ["typed"],
            registry=registry,
        )
        self.silent_outcomes = Counter(
            "tabwise_ingest_silent_outcomes",
            "Outcomes of clients that send no events: what was suggested was written",
            registry=registry,
        )
        self.settling_behind_s = Gauge(
            "tabwise_ingest_settling_behind_seconds", "How far a look back is behind", ["look"], registry=registry
        )
        self.relayed = Counter("tabwise_ingest_relayed", "Outbox messages that reached their stream", registry=registry)
        self.resent = Counter(
            "tabwise_ingest_resent", "Messages sent again, because Redis came back without them", registry=registry
        )
        self.generations_backlog = Gauge(
            "tabwise_ingest_generations_backlog", "Generations in the stream, not yet recorded", registry=registry
        )
        self.pending_events = Gauge("tabwise_ingest_pending_events", "Events not yet joined", registry=registry)
        self.open_outcomes = Gauge("tabwise_ingest_open_outcomes", "Outcomes not yet resolved", registry=registry)
        self.outbox_backlog = Gauge("tabwise_ingest_outbox_backlog", "Outbox messages not yet sent", registry=registry)
        self.keys_file_errors = Counter(
            "tabwise_ingest_keys_file_errors", "Times that the keys file could not be used", registry=registry
        )
        self.loop_up = Gauge(
            "tabwise_ingest_loop_up", "1 while a loop's last step worked, else 0", ["loop"], registry=registry
        )
        self.loop_failures = Counter(
            "tabwise_ingest_loop_failures", "Steps that failed", ["loop", "error"], registry=registry
        )

    def resolved_display(self, label: str, reward: float, policy_version: int, project: str) -> None:
        """Count one resolved display, for the newest policy versions and the first projects alone."""
        version, bounded = self._version_label(policy_version), self._project_label(project)
        self.displays.labels(label, version, bounded).inc()
        self.reward_sum.labels(version, bounded).inc(reward)
        self.resolved.labels(label).inc()
        self.resolved_reward.labels("negative" if reward < 0 else "positive").inc(abs(reward))

    def _project_label(self, project: str) -> str:
        if project not in self._projects and len(self._projects) >= PROJECTS_KEPT:
            return "other"
        self._projects.add(project)
        return project

    def _version_label(self, version: int) -> str:
        self._versions.add(version)
        while len(self._versions) > VERSIONS_KEPT:
            oldest = min(self._versions)
            self._versions.remove(oldest)
            self.displays.remove_by_labels({"policy_version": str(oldest)})
            self.reward_sum.remove_by_labels({"policy_version": str(oldest)})
        return str(version) if version in self._versions else "older"
