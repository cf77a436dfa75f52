"""The learner's life as a child process, and one round's conversation with it.

In: a `TrainRequest` or `SampleRequest`. Out: its `StepDone`s and `RoundDone`, or `Sampled`. The child is started on
first use, stays up between rounds and is started again after it died. It runs in a session of its own (Ctrl-C in the
terminal reaches only us) and is killed with all of its ranks; should we be killed, it reads end-of-file, and the kernel
kills it besides (Linux).
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
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
        startup_s: float = 180.0,
        timeout_s: float = 600.0,
        on_start: Callable[[], None] = lambda: None,
        log_file: Path | None = None,
    ) -> None:
        """`log_file`: where the child's output is appended; None: it goes where ours goes."""
        self._config = config
        self._module = module
        self._ranks = ranks
        self._startup_s = startup_s
        self._timeout_s = timeout_s
        self._on_start = on_start
        self._log_file = log_file
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Of the running child."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

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
        if self._child is not None:
            _end(self._child, wait_s)
            self._child = None

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
        if self._child is not None and (status := self._child.poll()) is not None:
            raise LearnerDied(f"the learner exited with status {status}; its log says why")
        if time.monotonic() > deadline_s:
            raise LearnerDied("the learner said nothing for too long")
        if abandon():
            raise RoundAbandoned("stopping: the round was abandoned")

    def _launch(self, abandon: Callable[[], bool]) -> Connection:
        """Start the child and return the connection that it opens."""
        authkey = secrets.token_bytes(32)
        deadline_s = time.monotonic() + self._startup_s
        with tempfile.TemporaryDirectory(prefix="tabwise-learner-") as folder:
            address = str(Path(folder) / "socket")
            with Listener(address, "AF_UNIX", authkey=authkey) as listener:
                self._child = self._spawn(address, authkey)
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

    def _spawn(self, address: str, authkey: bytes) -> subprocess.Popen[bytes]:
        launcher = ["-m", self._module]
        if self._ranks > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self._ranks}", *launcher]
        told = {
            LEARNER_CONFIG: self._config.model_dump_json(),
            LEARNER_ADDRESS: address,
            LEARNER_AUTHKEY: authkey.hex(),
        }
        with ExitStack() as after_start:
            output = None if self._log_file is None else after_start.enter_context(self._log_file.open("ab"))
            return subprocess.Popen(
                [sys.executable, *launcher],
                env=os.environ | told,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )


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


def _die_with_parent() -> Callable[[], None] | None:
    """For the child between fork and exec: have the kernel kill it when the thread that started it is gone."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _end(child: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait, then kill the child's whole process group (ranks may outlive their launcher)."""
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        log.warning("learner killed", pid=child.pid)
    finally:
        _kill_group(child.pid)
        child.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
