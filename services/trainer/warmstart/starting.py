"""Everything that a run needs, opened once and closed in reverse order; and what it leaves when it is done.

In: the configuration. Out: `whole_run`'s state. Killed anywhere in between, the same call goes on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry
from rich.console import Console

from services.trainer.learner_process import LearnerDied, LearnerProcess
from services.trainer.metrics import TrainerMetrics
from services.trainer.runtime import make_learner
from services.trainer.settings import TrainerSettings
from services.trainer.warmstart import keeping, screen
from services.trainer.warmstart.config import WarmStartConfig
from services.trainer.warmstart.logs import LEARNERS_RUN, RUNS, RunLog
from services.trainer.warmstart.result import write_final
from services.trainer.warmstart.rewards.mix import RewardMix, Scores
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.run import Run, begin
from services.trainer.warmstart.samples import Samples, build_samples
from services.trainer.warmstart.state import RunState, data_of, forget, load_state, only_run
from services.trainer.warmstart.tokens import PromptTokenizer
from shared.kit.errors import SettingsError

LEARNER_LOG = "learner.log"
_SETTING = re.compile(r"TABWISE_([A-Z_]+)")


def whole_run(config: WarmStartConfig, console: Console, *, restart: bool) -> RunState:
    """From wherever it stands to its end, the result written. Raises `SettingsError`, `GaveUp`, `RewardError`."""
    mix = RewardMix.of(config.rewards)
    with only_run(config.output):
        if restart:
            forget(config.output)
        state, samples = _samples(config, console)
        measured = state.evaluations[-1].round if state.evaluations else -1
        if measured < max(state.round, config.training.rounds):
            state = _train(config, console, samples, state, mix)
        write_final(config.output, state.checkpoint.folder, _report(config, state))
    return state


def learner_settings(config: WarmStartConfig, run_id: str) -> TrainerSettings:
    """As the online trainer would have them for the same learner."""
    return config.learner.settings(
        model_path=config.model,
        tensorboard_dir=str(config.output / LEARNERS_RUN),
        run_name=f"{config.output.name}-{run_id[:8]}",
        run_dir=str(config.output / RUNS),
        max_completion_tokens=config.training.max_completion_tokens,
        learner_seed=config.seed,
    )


def _samples(config: WarmStartConfig, console: Console) -> tuple[RunState, Samples]:
    """Those of the run that is under way, or new ones."""
    state = load_state(config)
    if state is not None:
        samples = keeping.load_samples(config.output)
        console.print(f"going on after round {state.round} of {config.training.rounds}", highlight=False)
    else:
        with console.status("reading files"):
            samples = build_samples(config)
        screen.show_counts(console, samples)
        keeping.save_samples(samples, config.output)
        state = begin(config, data_of(config))
    return state, samples


def _train(config: WarmStartConfig, console: Console, samples: Samples, state: RunState, mix: RewardMix) -> RunState:
    with ExitStack() as opened:
        log = RunLog(config.output)
        opened.callback(log.close)
        watcher = opened.enter_context(screen.Screen(console, config.training.rounds, state.round))
        learner = opened.enter_context(_learner(config, state.run_id))
        runner = opened.enter_context(asyncio.Runner())

        def score(candidates: Sequence[Candidate]) -> Scores:
            return runner.run(mix.score(candidates))

        run = Run(
            config,
            samples,
            state,
            learner=learner,
            tokenizer=PromptTokenizer.of(config.model),
            score=score,
            log=log,
            watcher=watcher,
        )
        log.line("started", round=state.round, run_id=state.run_id, **samples.counts())
        run.go()
        return run.state


@contextmanager
def _learner(config: WarmStartConfig, run_id: str) -> Iterator[LearnerProcess]:
    """Its model loaded. Raises `SettingsError` where that cannot be done."""
    log_file = config.output / LEARNER_LOG
    learner = make_learner(learner_settings(config, run_id), TrainerMetrics(CollectorRegistry()), log_file)
    try:
        learner.start()
    except LearnerDied as error:
        raise SettingsError(f"{in_yaml_words(str(error))} ({log_file})") from error
    try:
        yield learner
    finally:
        learner.stop()


def in_yaml_words(sentence: str) -> str:
    """The learner names the trainer's environment variables; here they are keys."""

    def key(found: re.Match[str]) -> str:
        name = found.group(1).lower()
        return "model" if name == "model_path" else f"learner.{name}"

    return _SETTING.sub(key, sentence)


def _report(config: WarmStartConfig, state: RunState) -> dict[str, object]:
    """Beside the model: where it comes from, and how good it was."""
    return {
        "run_id": state.run_id,
        "model": config.model,
        "rounds": state.round,
        "version": state.checkpoint.version,
        "evaluations": [done.model_dump() for done in state.evaluations],
    }
