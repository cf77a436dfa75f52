"""A run, round by round: draw, score, plan, train, note; held-out figures at the start, every so often and at the end.

In: samples, and how far an earlier process came. Out: checkpoints `vNNNNNN/` below `output`, and the state after each.
The learner process samples and trains: there is one copy of the weights, and one trainer for this and for online.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Protocol

from services.trainer import tracker
from services.trainer.learner_api import CheckpointRef, StepDone, TrainRequest
from services.trainer.learner_process import LearnerDied, RoundRefused, TrainedRound
from services.trainer.warmstart import result
from services.trainer.warmstart.config import WarmStartConfig
from services.trainer.warmstart.drawing import Sampling, WarmLearner, draw, seed_of
from services.trainer.warmstart.evaluation import Score, evaluate
from services.trainer.warmstart.logs import RunLog
from services.trainer.warmstart.planning import Plan, Scored, candidate, picked, plan
from services.trainer.warmstart.samples import Samples
from services.trainer.warmstart.state import Evaluated, RunState
from services.trainer.warmstart.tokens import PromptTokenizer
from shared.contracts.names import CHECKPOINT_FOLDER
from shared.kit.errors import TemporaryError

MAX_FAILURES = 3
"""Times in a row that a round is tried again after the learner died or refused."""
MAX_IN_VAIN = 10
"""Rounds in a row that may change nothing."""


class GaveUp(TemporaryError):
    """The run cannot go on; what it has done is kept, and the message says what to look at."""


class Watcher(Protocol):
    """Who wants to know how far it is: a progress bar, or a test."""

    def round_done(self, number: int, figures: dict[str, float]) -> None:
        """After each round."""

    def evaluated(self, done: Evaluated) -> None:
        """After each evaluation."""


class Run:
    """One run. `state` is what is on disk."""

    def __init__(
        self,
        config: WarmStartConfig,
        samples: Samples,
        state: RunState,
        *,
        learner: WarmLearner,
        tokenizer: PromptTokenizer,
        score: Score,
        log: RunLog,
        watcher: Watcher,
    ) -> None:
        self._config, self._samples, self.state = config, samples, state
        self._learner, self._tokenizer, self._score = learner, tokenizer, score
        self._log, self._watcher = log, watcher
        self._held_out = samples.test[: config.evaluation.samples]

    def go(self) -> None:
        """To the last round. Raises `GaveUp`, `RewardError`."""
        rounds = self._config.training.rounds
        while True:
            if self.state.round % self._config.evaluation.every == 0 or self.state.round >= rounds:
                self._evaluate()
            if self.state.round >= rounds:
                return
            self._attempt()

    # A round

    def _attempt(self) -> None:
        """One round, tried again where the learner failed."""
        for failures in range(1, MAX_FAILURES + 1):
            try:
                return self._round()
            except (LearnerDied, RoundRefused) as error:
                self._log.line("failed", round=self.state.round + 1, reason=str(error))
                if failures == MAX_FAILURES:
                    raise GaveUp(f"round {self.state.round + 1} failed {failures} times: {error}") from error
        return None

    def _round(self) -> None:
        started = time.monotonic()
        scored, figures = self._drawn()
        planned = plan(scored, self._config.training, self.state.values, self._prior())
        trained = self._train(planned, figures) if planned.minibatches else None
        changed = trained is not None and any(step.skipped is None for step in trained.steps)
        self._note(scored, trained.done.target if trained and changed else None)
        facts = {**planned.figures(), **figures, **_means(trained.steps if trained else [])}
        facts["seconds"] = time.monotonic() - started
        self._log.line("round", round=self.state.round, version=self.state.checkpoint.version, **facts)
        self._watcher.round_done(self.state.round, facts)
        if self.state.in_vain >= MAX_IN_VAIN:
            raise GaveUp(
                f"{MAX_IN_VAIN} rounds in a row changed nothing: all rewards equal, or steps that were not finite; "
                f"see {self._config.output / 'log.jsonl'}"
            )

    def _drawn(self) -> tuple[list[Scored], dict[str, float]]:
        """This round's prompts with scored completions, and the rewards' figures."""
        training, number = self._config.training, self.state.round
        places = picked(number, training.prompts_per_round, len(self._samples.train), self._config.seed)
        samples = [self._samples.train[place] for place in places]
        sampling = Sampling(
            count=training.group_size,
            temperature=training.temperature,
            max_tokens=training.max_completion_tokens,
            seed=seed_of(self._config.seed, number),
        )
        groups = draw(self._learner, self.state.checkpoint, samples, sampling, self._tokenizer)
        scores = self._score(
            [candidate(s, one) for s, group in zip(samples, groups, strict=True) for one in group.samples]
        )
        size = training.group_size
        rewards = [tuple(scores.total[at * size : (at + 1) * size]) for at in range(len(samples))]
        scored = [Scored(*each) for each in zip(samples, groups, rewards, strict=True)]
        return scored, scores.figures()

    def _train(self, planned: Plan, figures: dict[str, float]) -> TrainedRound:
        base = self.state.checkpoint
        folder = self._config.output / CHECKPOINT_FOLDER.format(version=base.version + 1)
        target = CheckpointRef(version=base.version + 1, lineage=str(uuid.uuid4()), folder=str(folder))
        request = TrainRequest(
            base=base, target=target, minibatches=planned.minibatches, scalars=planned.figures() | figures
        )
        return self._learner.train(request)

    def _note(self, scored: Sequence[Scored], checkpoint: CheckpointRef | None) -> None:
        """The round is done: the state names the new checkpoint, and old ones may go."""
        state = self.state
        observed = [(one.bucket, reward) for one in scored for _, reward in one.known]
        values = tracker.updated(state.values, observed, self._config.training.tracker_decay)
        self._save(
            round=state.round + 1,
            checkpoint=checkpoint or state.checkpoint,
            tracker=state.tracker | {bucket: (value.mean, value.weight) for bucket, value in values.items()},
            in_vain=0 if checkpoint else state.in_vain + 1,
        )
        result.remove_old(self._config.output, self.state.checkpoint.version, self._config.training.keep_checkpoints)

    def _prior(self) -> float:
        """What the tracker expects while it is young: the model's reward before the first round."""
        return self.state.evaluations[0].figures.get("reward/total_mean", 0.0)

    # Held-out figures

    def _evaluate(self) -> None:
        """Unless this very state has been measured."""
        state, options = self.state, self._config.evaluation
        if any(done.round == state.round for done in state.evaluations):
            return
        sampling = Sampling(
            count=1,
            temperature=options.temperature,
            max_tokens=self._config.training.max_completion_tokens,
            seed=seed_of(self._config.seed, "held out"),
        )
        figures = evaluate(self._learner, state.checkpoint, self._held_out, sampling, self._tokenizer, self._score)
        done = Evaluated(round=state.round, version=state.checkpoint.version, figures=figures)
        self._save(evaluations=[*state.evaluations, done])
        self._log.line("evaluation", round=done.round, version=done.version, **figures)
        self._log.scalars(figures, done.version)
        self._watcher.evaluated(done)

    def _save(self, **changes: Any) -> None:
        self.state = self.state.model_copy(update=changes)
        self.state.save(self._config.output)


def _means(steps: Sequence[StepDone]) -> dict[str, float]:
    """Of a round's steps that were taken."""
    taken = [step for step in steps if step.skipped is None]
    figures = {"steps": float(len(taken)), "skipped": float(len(steps) - len(taken))}
    if taken:
        names = ("loss", "kl", "grad_norm", "clip_share", "logprob_gap_mean", "tokens")
        figures |= {name: fmean(getattr(step, name) for step in taken) for name in names}
    return figures


def begin(config: WarmStartConfig, data: dict[str, Any]) -> RunState:
    """The state before the first round, on disk."""
    state = RunState(run_id=str(uuid.uuid4()), data=data)
    state.save(config.output)
    return state
