"""The learner's life as a child process, and one round's conversation with it.

In: a `TrainRequest` or `SampleRequest`. Out: its `StepDone`s and `RoundDone`, or `Sampled`. The child is started on
first use, stays up between rounds and is started again after it died. It runs in a session of its own (Ctrl-C in the
terminal reaches only us) and is killed with all of its ranks; should we be killed, it reads end-of-file, and the kernel
kills it besides (Linux).
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from services.trainer.learner_api import (
    LEARNER_ADDRESS,
    LEARNER_AUTHKEY,
    LEARNER_CONFIG,
    REPLY,
    AnyReply,
    AnyRequest,
    LearnerConfig,
    LearnerReady,
    RoundDone,
    RoundFailed,
    Sampled,
    SampleRequest,
    StepDone,
    TrainRequest,
)
from services.trainer.learner_nodes import Nodes, start
from services.trainer.lifeline import end
from shared.kit.errors import TabwiseError, TemporaryError

log = structlog.get_logger()

_POLL_S = 0.1
_KILL_AFTER_S = 5.0
_Last = TypeVar("_Last", RoundDone, Sampled)


class LearnerDied(TemporaryError):
    """The child is gone, silent or never came up; nothing was committed. The next round starts another."""


class RoundRefused(TemporaryError):
    """The learner is up, but could not train this round; nothing was written."""


class RoundAbandoned(TabwiseError):
    """We are stopping and the round did not finish in time; its entries are redelivered."""


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """What the learner did."""

    steps: list[StepDone]
    done: RoundDone


class Learner(Protocol):
    """The seam to the learner, for the rounds."""

    def train(self, request: TrainRequest, abandon: Callable[[], bool]) -> TrainedRound:
        """Blocks until the target is written. Raises `LearnerDied`, `RoundRefused` or, if told to, `RoundAbandoned`."""


class LearnerProcess:
    """One child at a time."""

    def __init__(
        self,
        config: LearnerConfig,
        *,
        module: str,
        ranks: int = 1,
        nodes: Nodes | None = None,
        startup_s: float = 180.0,
        timeout_s: float = 600.0,
        on_start: Callable[[], None] = lambda: None,
        log_file: Path | None = None,
    ) -> None:
        """`log_file`: where the child's output is appended; None: it goes where ours goes."""
        self._config = config
        self._module = module
        self._ranks = ranks
        self._nodes = nodes
        self._startup_s = startup_s
        self._timeout_s = timeout_s
        self._on_start = on_start
        self._log_file = log_file
        self._children: list[subprocess.Popen[bytes]] = []
        """The one on this machine first, then one for each other node."""
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Of the running child on this machine; None where any has ended."""
        return self._children[0].pid if self._children and not self._ended() else None

    def train(self, request: TrainRequest, abandon: Callable[[], bool] = lambda: False) -> TrainedRound:
        """See `Learner.train`."""
        steps, done = self._ask(request, RoundDone, abandon)
        return TrainedRound(steps, done)

    def sample(self, request: SampleRequest, abandon: Callable[[], bool] = lambda: False) -> Sampled:
        """Completions from `request.base`. Raises as `train` does."""
        return self._ask(request, Sampled, abandon)[1]

    def _ask(self, request: AnyRequest, last: type[_Last], abandon: Callable[[], bool]) -> tuple[list[StepDone], _Last]:
        """The steps and the `last` reply; the child is stopped where it cannot be trusted any more."""
        self.start(abandon)
        try:
            return self._converse(request, last, abandon)
        except (OSError, EOFError, ValueError) as error:
            self.stop(wait_s=0)
            raise LearnerDied(f"the learner died during a round: {type(error).__name__}") from error
        except (LearnerDied, RoundAbandoned):
            self.stop(wait_s=0)
            raise

    def start(self, abandon: Callable[[], bool] = lambda: False) -> None:
        """Start the child unless it runs, and wait until its model is loaded. Raises `LearnerDied`."""
        if self.pid is not None and self._connection is not None:
            return
        self.stop()
        self._on_start()
        try:
            self._connection = self._launch(abandon)
            ready = self._receive(self._connection, time.monotonic() + self._startup_s, abandon)
        except (OSError, EOFError, ValueError) as error:
            self.stop(wait_s=0)
            raise LearnerDied(f"the learner did not start: {type(error).__name__}") from error
        except TabwiseError:
            self.stop(wait_s=0)
            raise
        if not isinstance(ready, LearnerReady):
            self.stop()
            reason = ready.error if isinstance(ready, RoundFailed) else f"it said {ready.kind!r} first"
            raise LearnerDied(f"the learner did not start: {reason}")
        log.info("learner ready", ranks=ready.ranks, parameters=ready.parameters, device=ready.device, pid=self.pid)

    def stop(self, wait_s: float = _KILL_AFTER_S) -> None:
        """Close the connection, which ends the child; kill it with all of its ranks if that takes longer."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for child in self._children:
            if child.stdin is not None:
                child.stdin.close()  # another node's sign to stop
            end(child, wait_s)
        self._children = []

    def _converse(
        self, request: AnyRequest, last: type[_Last], abandon: Callable[[], bool]
    ) -> tuple[list[StepDone], _Last]:
        assert self._connection is not None
        self._connection.send_bytes(request.model_dump_json().encode())
        steps: list[StepDone] = []
        while True:
            reply = self._receive(self._connection, time.monotonic() + self._timeout_s, abandon)
            if isinstance(reply, StepDone):
                steps.append(reply)
            elif isinstance(reply, last):
                return steps, reply
            elif isinstance(reply, RoundFailed) and reply.leaving:
                raise LearnerDied(f"the learner gave up: {reply.error}")
            elif isinstance(reply, RoundFailed):
                raise RoundRefused(f"the learner could not {request.kind}: {reply.error}")
            else:
                raise LearnerDied(f"the learner said {reply.kind!r} in a round")

    def _receive(self, connection: Connection, deadline_s: float, abandon: Callable[[], bool]) -> AnyReply:
        while not connection.poll(_POLL_S):
            self._check(deadline_s, abandon)
        return REPLY.validate_json(connection.recv_bytes())

    def _check(self, deadline_s: float, abandon: Callable[[], bool]) -> None:
        """Raise where waiting on makes no sense."""
        if ended := self._ended():
            raise LearnerDied(f"the learner exited with status {ended[0]}; its log says why")
        if time.monotonic() > deadline_s:
            raise LearnerDied("the learner said nothing for too long")
        if abandon():
            raise RoundAbandoned("stopping: the round was abandoned")

    def _ended(self) -> list[int]:
        """Exit statuses of those that have ended: where one has, the others cannot go on."""
        return [status for child in self._children if (status := child.poll()) is not None]

    def _launch(self, abandon: Callable[[], bool]) -> Connection:
        """Start the child and return the connection that it opens."""
        authkey = secrets.token_bytes(32)
        deadline_s = time.monotonic() + self._startup_s
        with tempfile.TemporaryDirectory(prefix="tabwise-learner-") as folder:
            address = str(Path(folder) / "socket")
            with Listener(address, "AF_UNIX", authkey=authkey) as listener:
                self._children = self._spawn(address, authkey)
                waiter = _Accept(listener)
                waiter.start()
                try:
                    while not waiter.done.wait(_POLL_S):
                        self._check(deadline_s, abandon)
                finally:
                    waiter.give_up(address)
        if waiter.connection is None:
            raise LearnerDied("the learner did not authenticate")
        return waiter.connection

    def _spawn(self, address: str, authkey: bytes) -> list[subprocess.Popen[bytes]]:
        told = {
            LEARNER_CONFIG: self._config.model_dump_json(),
            LEARNER_ADDRESS: address,
            LEARNER_AUTHKEY: authkey.hex(),
        }
        with ExitStack() as after_start:
            output = None if self._log_file is None else after_start.enter_context(self._log_file.open("ab"))
            return start(self._module, self._ranks, self._nodes, told, output)


class _Accept(threading.Thread):
    """`Listener.accept` knows no time limit, so it waits in a thread."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(name="learner-accept", daemon=True)
        self._listener = listener
        self.done = threading.Event()
        self.connection: Connection | None = None

    def run(self) -> None:
        try:
            self.connection = self._listener.accept()
        except (OSError, EOFError, AuthenticationError) as error:
            log.warning("learner connection failed", error=type(error).__name__)
        finally:
            self.done.set()

    def give_up(self, address: str) -> None:
        """Wake the thread where nobody came, by coming and leaving at once."""
        if not self.done.is_set():
            with socket.socket(socket.AF_UNIX) as visitor:
                visitor.connect(address)
        self.join(timeout=_KILL_AFTER_S)
