"""Every figure that the trainer shows to Prometheus. Labels never hold user code, keys or projects."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.trainer.learner_api import LOGPROB_GAP, NON_FINITE, StepDone

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
DONE = "done"
_VERSIONS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)


class TrainerMetrics:
    """One per process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, namespace="tabwise", subsystem="trainer", registry=registry)
        gauge = partial(Gauge, namespace="tabwise", subsystem="trainer", registry=registry)
        histogram = partial(Histogram, namespace="tabwise", subsystem="trainer", registry=registry)
        self.tasks = counter("tasks", "Ticks by outcome (idle, round, busy, failed, abandoned).", ["outcome"])
        """Ticks by outcome."""
        self.rounds = counter("rounds", "Rounds by outcome (committed, empty, failed).", ["outcome"])
        """`committed` made a checkpoint; `empty` only put experience aside."""
        self.failures_in_row = gauge(
            "failures_in_row", "Rounds in a row that failed, or in which no step changed anything."
        )
        """Above zero for long: look at the learner's log."""
        self.minibatches = counter(
            "minibatches", "Optimiser steps by outcome (done, non_finite, logprob_gap).", ["outcome"]
        )
        """All but `done` changed nothing, and are worth an alert."""
        for outcome in (DONE, NON_FINITE, LOGPROB_GAP):
            self.minibatches.labels(outcome=outcome)  # there from the start, or the first one is no increase
        self.held_back = counter("held_back", "Experience that is tried again: its mini-batch was not finite.")
        """Each time counts."""
        self.experience = counter(
            "experience",
            "Experience by what became of it (trained, trained_stale, stale, no_signal, invalid, logprob_gap, "
            "duplicate, dead).",
            ["disposition"],
        )
        """All that left the stream."""
        self.redelivered = counter("redelivered", "Entries that were claimed again.")
        """After a crash, or because they were held back."""
        self.stream_lag = gauge("stream_lag", "Experience that is not acknowledged yet.")
        """Length of the stream."""
        self.staleness = histogram("staleness_versions", "Versions between sampling and training.", buckets=_VERSIONS)
        """Of shown completions, also of those that were too old."""
        self.group_known = histogram(
            "group_known_rewards", "Completions with a known reward per group.", buckets=_COUNTS
        )
        """The shown one included."""
        self.group_size = histogram("group_size", "Completions per group, known or not.", buckets=_COUNTS)
        """The shown one included."""
        self.sibling_draws = counter("sibling_draws", "Siblings asked of the engine.")
        """Choices, not requests."""
        self.sibling_failures = counter("sibling_failures", "Siblings not had or dropped.", ["reason"])
        """`engine_away`, `timeout`, `http_…`, `bad_answer`, `bad_logprobs`, `no_policy_version`, …"""
        self.advantages = counter("advantages", "Known rewards that were given an advantage.")
        """The denominator of the zero share."""
        self.zero_advantage = counter("zero_advantage", "Known rewards whose advantage was zero.")
        """Over `advantages`: the zero-advantage share."""
        self.zero_share = gauge("zero_advantage_share", "Zero-advantage share of the last round.")
        """0 to 1."""
        self.without_baseline = counter(
            "groups_without_baseline", "Groups measured against the value tracker.", ["why"]
        )
        """`lone`: fewer than two known rewards; `equal`: all the same."""
        self.reward_shown = gauge("reward_shown_mean", "Mean reward of shown completions, last round.")
        """What users gave."""
        self.reward_known = gauge("reward_known_mean", "Mean of all known rewards, last round.")
        """Siblings included."""
        self.known_share = gauge("known_share", "Share of completions whose reward is known, last round.")
        """0 to 1."""
        self.loss = gauge("loss", "Policy loss of the last step.")
        """Mean over credited tokens."""
        self.kl = gauge("kl", "Estimate of the KL to the reference, last step.")
        """Nats per token."""
        self.kl_spread = histogram("kl_nats", "KL per step.", buckets=(1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1, 3))
        """Distribution over steps."""
        self.grad_norm = gauge("grad_norm", "Gradient norm of the last step, before clipping.")
        """L2."""
        self.grad_norm_spread = histogram(
            "grad_norm_l2", "Gradient norm per step.", buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
        )
        """Distribution over steps."""
        self.clip_share = gauge("clip_share", "Share of tokens whose ratio was clipped, last step.")
        """0 to 1."""
        self.importance_mean = gauge("importance_mean", "Mean importance weight before the cap, last step.")
        """1 on policy."""
        self.importance_max = gauge("importance_max", "Largest importance weight before the cap, last step.")
        """Of one token."""
        self.importance_spread = histogram(
            "importance_max_weight", "Largest importance weight per step.", buckets=(1, 1.1, 1.5, 2, 4, 8, 16, 64)
        )
        """Distribution over steps."""
        self.effective_sample_share = gauge("effective_sample_share", "(Σw)²/(nΣw²) of the last step.")
        """1 when all importance weights are equal."""
        self.masked_share = gauge("masked_share", "Share of tokens whose importance weight was 0, last step.")
        """0 to 1; above 0 with `importance=…_mask` alone."""
        self.logprob_gap = gauge("logprob_gap_mean", "Mean |learner − engine| logprob of the last step.")
        """Nats; how far the learner's numbers are from the engine's. Also of steps that were refused for it."""
        self.logprob_gap_max = gauge("logprob_gap_max", "Largest |learner − engine| logprob of the last step.")
        """Nats; of one token."""
        self.tokens = counter("tokens", "Credited tokens that were trained on.")
        """Over all steps."""
        self.phase_seconds = histogram(
            "round_phase_seconds", "Duration by phase (claim, sample, learn, commit, ack).", ["phase"], buckets=_SECONDS
        )
        """Of one round."""
        self.feedback_age = histogram(
            "feedback_to_commit_seconds",
            "From the first feedback event to the commit.",
            buckets=(1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1800),
        )
        """Of each trained experience."""
        self.committed_version = gauge("committed_version", "Newest committed version.")
        """0: the base model."""
        self.learner_starts = counter("learner_starts", "Times the learner process was started.")
        """More than one: it died or was abandoned."""
        self.tracking_lost = counter(
            "tracking_lost", "Steps and rounds that an experiment tracker did not take.", ["tracker"]
        )
        """Training went on; the learner's log says why."""
        self.learner_rss_mb = gauge("learner_rss_mb", "Peak memory of the learner, all ranks.")
        """MiB."""

    def step(self, step: StepDone) -> None:
        """Take over one step's figures."""
        self.minibatches.labels(outcome=step.skipped or DONE).inc()
        if step.skipped != NON_FINITE:
            self._gap(step)
        if step.skipped:
            return
        self.loss.set(step.loss)
        self.kl.set(step.kl)
        self.kl_spread.observe(step.kl)
        self.grad_norm.set(step.grad_norm)
        self.grad_norm_spread.observe(step.grad_norm)
        self.clip_share.set(step.clip_share)
        self.masked_share.set(step.masked_share)
        self.tokens.inc(step.tokens)

    def _gap(self, step: StepDone) -> None:
        self.importance_mean.set(step.importance_mean)
        self.importance_max.set(step.importance_max)
        self.importance_spread.observe(step.importance_max)
        self.effective_sample_share.set(step.effective_sample_share)
        self.logprob_gap.set(step.logprob_gap_mean)
        self.logprob_gap_max.set(step.logprob_gap_max)
