"""The connection to the trainer. Rank 0 talks; the other ranks follow what it broadcasts.

In: `TrainRequest` or `SampleRequest` as JSON bytes. Out: `LearnerReady`, `StepDone`, `RoundDone`, `Sampled`,
`RoundFailed` as JSON bytes.
The trainer hanging up ends the process at once, also in the middle of a round: the trainer's next learner may be about
to write the same `vNNNNNN.tmp`.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import NoReturn

import structlog
from pydantic import BaseModel, ValidationError

from services.trainer.learner.checkpoint import CheckpointError
from services.trainer.learner.errors import one_line
from services.trainer.learner.ranks import Ranks
from services.trainer.learner.rounds import Emit, Learner
from services.trainer.learner.sampling import SamplingRefused
from services.trainer.learner_api import (
    REQUEST,
    AnyRequest,
    RoundDone,
    RoundFailed,
    Sampled,
    SampleRequest,
    StepDone,
)

log = structlog.get_logger()

_CLOSING_S = 4.5


def lead(connection: Connection, learner: Learner, ranks: Ranks) -> None:
    """Rank 0: answer requests until the trainer hangs up."""
    busy = threading.Event()
    threading.Thread(target=_leave_on_hangup, args=(connection.fileno(), busy), daemon=True).start()
    send(connection, learner.ready())
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            learner.close()
            leave()
        busy.set()
        _answer(connection, learner, ranks, message)
        busy.clear()


def follow(learner: Learner, ranks: Ranks) -> None:
    """Other ranks: train and sample what rank 0 does; go when it goes."""
    while True:
        try:
            message = ranks.broadcast(None)
        except RuntimeError:
            leave()
        if message is not None:
            _follow(learner, message)


def _follow(learner: Learner, message: str) -> None:
    try:
        _carry_out(learner, REQUEST.validate_json(message), _ignore)
    except Exception:
        log.exception("round failed")
        leave(1)  # at once, or rank 0 waits for us in a collective


def _answer(connection: Connection, learner: Learner, ranks: Ranks, message: bytes) -> None:
    try:
        request = REQUEST.validate_json(message)
        learner.verify(request.base)
        if isinstance(request, SampleRequest):
            request = learner.prepare(request)
            message = request.model_dump_json().encode()
    except ValidationError as error:
        send(connection, RoundFailed(error=f"not a request: {_where(error)}"))
    except (CheckpointError, SamplingRefused) as error:
        log.error("request refused", error=str(error))
        send(connection, RoundFailed(error=one_line(error)))
    else:
        ranks.broadcast(message.decode())
        _do(connection, learner, ranks, request)


def _carry_out(learner: Learner, request: AnyRequest, emit: Emit) -> RoundDone | Sampled:
    return learner.sample(request) if isinstance(request, SampleRequest) else learner.train(request, emit)


def _do(connection: Connection, learner: Learner, ranks: Ranks, request: AnyRequest) -> None:
    try:
        done = _carry_out(learner, request, lambda step: send(connection, step))
    except Exception as error:
        log.exception("round failed")
        several = ranks.world > 1  # the others may be waiting inside a collective: only a new process group is sure
        send(connection, RoundFailed(error=one_line(error), leaving=several))
        if several:
            leave(1)
    else:
        send(connection, done)


def send(connection: Connection, reply: BaseModel) -> None:
    """One reply; a trainer that is gone ends the process."""
    try:
        connection.send_bytes(reply.model_dump_json().encode())
    except (BrokenPipeError, ConnectionResetError):
        leave()


def _where(error: ValidationError) -> str:
    """Field and reason of the first error, without the values."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"


def _ignore(step: StepDone) -> None:
    """Rank 0 reports for all."""


def _leave_on_hangup(descriptor: int, busy: threading.Event) -> None:
    """Wait, without cost, until the other end has closed, then end the process: at once in the middle of a round."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    if not busy.is_set():
        time.sleep(_CLOSING_S)  # the main thread closes the trackers, and leaves before
    leave()


def leave(status: int = 0) -> NoReturn:
    """End now: no interpreter shutdown, which would wait for collectives that never come."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
