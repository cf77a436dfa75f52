"""Every figure that the publisher shows to Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_NATS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5)


class PublisherMetrics:
    """One per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, namespace="tabwise", subsystem="publisher", registry=registry)
        gauge = partial(Gauge, namespace="tabwise", subsystem="publisher", registry=registry)
        histogram = partial(Histogram, namespace="tabwise", subsystem="publisher", registry=registry)
        self.tasks = counter("tasks", "Ticks by outcome (idle, busy, published, waiting, failed).", ["outcome"])
        """`busy`: another publisher was at it; `waiting`: a replica is away or not to be retried yet."""
        self.publish_s = histogram("publish_seconds", "From the learner's commit to live.", buckets=_SECONDS)
        """Per version, when the last reachable replica serves it."""
        self.stage_s = histogram(
            "stage_seconds", "Per stage (upload, materialise, load, verify).", ["stage"], buckets=_SECONDS
        )
        """`load` is the in-place load alone, inside the pause."""
        self.pause_s = histogram("pause_seconds", "Between the answers to pause and resume.", buckets=_SECONDS)
        """What a user could have felt."""
        self.live_version = gauge("live_version", "The version that is live; 0 is the base model.")
        """Goes down on a rollback."""
        self.replica_version = gauge(
            "replica_version", "Version that a replica said it serves; -1: unknown or away.", ["replica"]
        )
        """The versions live at this moment."""
        self.versions = counter("versions", "Versions by what became of them (uploaded, live, failed).", ["status"])
        """Counted once per change."""
        self.failures = counter("failures", "Failed steps by reason.", ["reason"])
        """`upload`, `materialise`, `refused`, `no_answer`, `probe`, `unreachable`."""
        self.rollbacks = counter("rollbacks", "Replicas that were put back to an earlier version after a failure.")
        """Not those that an operator asked for."""
        self.probe_diff = histogram(
            "probe_max_diff_nats", "Largest difference of a probe logprob after a load.", buckets=_NATS
        )
        """Between the learner's figure and the engine's."""
        self.bytes = counter("uploaded_bytes", "Bytes of uploaded versions.")
        """Without the learner's own state, which stays where it is."""
        self.announcements = counter(
            "announcements",
            "Notices to the gateways (draining, serving), by whether Redis took them.",
            ["state", "result"],
        )
        """`sent` or `failed`; a publish goes on either way."""
        self.pinned = gauge("pinned", "1 while an operator has pinned a version.")
        """Newer versions are stored and not served meanwhile."""
