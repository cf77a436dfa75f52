"""`python -m services.trainer.learner`, or `torchrun --nproc-per-node N -m services.trainer.learner`.

In, from the environment: TABWISE_LEARNER_CONFIG (a `LearnerConfig` as JSON), TABWISE_LEARNER_ADDRESS (path of the
trainer's Unix socket) and TABWISE_LEARNER_AUTHKEY (hex). Started by the trainer, not by hand.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from multiprocessing.connection import Client, Connection

import structlog
import torch
from pydantic import ValidationError

from services.trainer.learner import serve
from services.trainer.learner.ranks import join_ranks
from services.trainer.learner.rounds import Learner
from services.trainer.learner_api import LEARNER_ADDRESS, LEARNER_AUTHKEY, LEARNER_CONFIG, LearnerConfig, RoundFailed
from shared.kit.errors import SettingsError
from shared.kit.logging import configure_logging

log = structlog.get_logger()


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SettingsError(f"{name} is not set: the learner is started by the trainer")
    return value


def _config() -> LearnerConfig:
    try:
        return LearnerConfig.model_validate_json(_setting(LEARNER_CONFIG))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise SettingsError(f"{LEARNER_CONFIG}: {first['loc']}: {first['msg']}") from error


def _connect() -> Connection:
    address = _setting(LEARNER_ADDRESS)
    try:
        return Client(address, family="AF_UNIX", authkey=bytes.fromhex(_setting(LEARNER_AUTHKEY)))
    except OSError as error:
        raise SettingsError(f"{LEARNER_ADDRESS}: nobody answers at {address} ({error.strerror})") from error


def run() -> None:
    """Build the learner on every rank and serve until the trainer hangs up."""
    config = _config()
    if config.threads:
        torch.set_num_threads(config.threads)
    ranks = join_ranks()
    connection = _connect() if ranks.first else None
    try:
        learner = Learner(config, ranks)
    except SettingsError as error:
        if connection is not None:
            serve.send(connection, RoundFailed(error=str(error)))
        raise
    if connection is None:
        serve.follow(learner, ranks)
    else:
        serve.lead(connection, learner, ranks)


def main() -> None:
    """Entry point: one sentence and status 2 for a wrong setting. A rank that fails goes at once: others wait."""
    configure_logging("learner")
    warnings.filterwarnings("ignore", category=FutureWarning, message="`torch.distributed")  # DeepSpeed's calls
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the trainer decides for us
    try:
        run()
    except SettingsError as error:
        print(error, file=sys.stderr)
        serve.leave(2)
    except Exception:
        log.exception("learner failed")
        serve.leave(1)


if __name__ == "__main__":
    main()
