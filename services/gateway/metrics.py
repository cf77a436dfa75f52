"""Every figure of the gateway, one attribute each. Labels never hold user code, file names or keys."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.gateway.router import Replica, Router
from shared.contracts.generation import Generation

VERSIONS_KEPT = 8
"""Latencies are kept for this many newest policy versions; a series per version for ever would fill Prometheus."""
_FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
_TOTAL_S = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 120)


class GatewayMetrics:
    """Created once per app, on its own registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "tabwise_gateway_requests_total", "Completion requests answered", ["status", "stream"], registry=registry
        )
        """By HTTP status (499: the client hung up first; 200: the answer began) and whether streamed."""
        self.passed_on = Counter(
            "tabwise_gateway_passed_on_total", "Requests passed on to others", ["route", "status"], registry=registry
        )
        """`chat` or `events`, by HTTP status."""
        self.in_flight = Gauge(
            "tabwise_gateway_completions_in_flight", "Completions being generated", registry=registry
        )
        self.first_token = Histogram(
            "tabwise_gateway_first_token_seconds",
            "From the request's arrival to its first token",
            ["version"],
            buckets=_FIRST_TOKEN_S,
            registry=registry,
        )
        """By policy version."""
        self.total = Histogram(
            "tabwise_gateway_completion_seconds",
            "From the request's arrival to its last token, or to the client's hanging up",
            ["version"],
            buckets=_TOTAL_S,
            registry=registry,
        )
        """By policy version."""
        self.choices = Counter(
            "tabwise_gateway_choices_total", "Choices that were generated", ["outcome"], registry=registry
        )
        """`suggested`: some text; `silent`: ended by the model without any; `cut`: neither. Suggestion rate:
        suggested / (suggested + silent)."""
        self.tokens = Counter("tabwise_gateway_tokens_total", "Tokens of completions", ["kind"], registry=registry)
        """`prompt` or `sampled`."""
        self.disconnects = Counter(
            "tabwise_gateway_client_disconnects_total", "Clients that hung up", ["stream"], registry=registry
        )
        self.recorded = Counter(
            "tabwise_gateway_generations_recorded_total", "Generations appended to the stream", registry=registry
        )
        self.dropped = Counter(
            "tabwise_gateway_generations_dropped_total", "Generations that are lost", ["reason"], registry=registry
        )
        """`queue_full`, `redis_away`, `shutdown`."""
        self.untrainable = Counter(
            "tabwise_gateway_generations_untrainable_total",
            "Generations that cannot be trained on",
            ["reason"],
            registry=registry,
        )
        self.append_failures = Counter(
            "tabwise_gateway_append_failures_total", "Failed tries to append to the stream", registry=registry
        )
        self.handed_over_again = Counter(
            "tabwise_gateway_handed_over_again_total",
            "Generations handed over again, because Redis came back without what it took last",
            registry=registry,
        )
        self.queue_depth = Gauge(
            "tabwise_gateway_emitter_queue_depth", "Generations that wait for Redis", registry=registry
        )
        self.upstream_errors = Counter(
            "tabwise_gateway_upstream_errors_total", "Failures of the engine", ["replica", "kind"], registry=registry
        )
        """`connect`, `reset`, `status`, `busy` (429), `garbage`, `truncated`, `engine_error`, and the deadlines
        `try_timeout`, `first_token_timeout`, `gap_timeout`, `total_timeout`."""
        self.retries = Counter(
            "tabwise_gateway_retries_total",
            "Tries on another replica, by what the one before did",
            ["kind"],
            registry=registry,
        )
        """Kinds as above. A completion that is retried and served is no error for its client."""
        self.ejections = Counter(
            "tabwise_gateway_replica_ejections_total",
            "Times that a replica was taken out",
            ["replica", "kind"],
            registry=registry,
        )
        """Kinds as above, and `probe`."""
        self.probes = Counter(
            "tabwise_gateway_probes_total", "Answers to the background probe", ["replica", "result"], registry=registry
        )
        """`well` or `ill`."""
        self.replica_up = Gauge(
            "tabwise_gateway_replica_up", "1 unless the replica is ejected", ["replica"], registry=registry
        )
        self.replica_draining = Gauge(
            "tabwise_gateway_replica_draining", "1 while a publish holds the replica", ["replica"], registry=registry
        )
        self.replica_in_flight = Gauge(
            "tabwise_gateway_replica_in_flight", "Requests that the replica works on", ["replica"], registry=registry
        )
        self.drain_listener = Gauge(
            "tabwise_gateway_drain_listener_connected", "1 while publishes are heard of", registry=registry
        )
        """Stays 0 with a single replica, which need not listen."""
        self.live_version = Gauge(
            "tabwise_gateway_policy_version",
            "Newest policy version seen in a replica's tokens",
            ["replica"],
            registry=registry,
        )
        self.refused = Counter(
            "tabwise_gateway_refused_total", "Requests answered 429 before they began", ["reason"], registry=registry
        )
        """`all_in_flight`, `key_in_flight`, `key_rate`; which key it was stands in the log."""
        self.keys_file_errors = Counter(
            "tabwise_gateway_keys_file_errors_total", "Times that the keys file could not be used", registry=registry
        )
        """The last good keys stay in force."""
        for reason in ("queue_full", "redis_away", "shutdown"):
            self.dropped.labels(reason)
        self._versions: set[int] = set()

    def watch(self, router: Router) -> None:
        """Show the pool as it is whenever somebody looks."""
        for replica in router.replicas:
            self.replica_up.labels(replica.name).set_function(partial(_up, router, replica))
            self.replica_draining.labels(replica.name).set_function(partial(_draining, router, replica))
            self.replica_in_flight.labels(replica.name).set_function(partial(_in_flight, replica))

    def observe(self, generation: Generation) -> None:
        """Count one recorded choice."""
        self.choices.labels(_outcome(generation)).inc()
        self.tokens.labels("sampled").inc(len(generation.token_ids))
        if generation.choice_index == 0:
            self.tokens.labels("prompt").inc(len(generation.prompt_token_ids))
            self._observe_latency(generation)
        if generation.untrainable is not None:
            self.untrainable.labels(generation.untrainable).inc()

    def _observe_latency(self, generation: Generation) -> None:
        version = str(generation.policy_version) if generation.policy_spans else "unknown"
        if generation.first_token_s is not None:
            self.first_token.labels(version).observe(generation.first_token_s)
        self.total.labels(version).observe(generation.total_s)
        if version != "unknown":
            self._keep_newest(int(version))

    def _keep_newest(self, version: int) -> None:
        self._versions.add(version)
        for old in sorted(self._versions)[:-VERSIONS_KEPT]:
            self._versions.remove(old)
            for histogram in (self.first_token, self.total):
                histogram.remove(str(old))


def _up(router: Router, replica: Replica) -> float:
    return 0.0 if router.ejected(replica) else 1.0


def _draining(router: Router, replica: Replica) -> float:
    return float(router.draining(replica))


def _in_flight(replica: Replica) -> float:
    return float(replica.in_flight)


def _outcome(generation: Generation) -> str:
    if generation.text.strip():
        return "suggested"
    return "silent" if generation.finish_reason in ("stop", "length") else "cut"
