"""The embedded stack as one object: start every part in order, watch them, stop them.

with Stack(StackConfig.load()) as stack:   # everything answers now
    stack.watch(seconds)                   # raises `StackError` when a part keeps dying
# everything is stopped now
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from deploy.local import last_words, preflight, processes, programs, supervision
from deploy.local.config import DATABASE, StackConfig
from deploy.local.programs import Program
from migrations.upgrade import upgrade
from shared.kit.errors import TabwiseError, TemporaryError

_POLL_S = 0.25
_RESTARTS = 4
_RESTART_WINDOW_S = 120.0


class StackError(TabwiseError):
    """A part does not work; the message is one sentence that names the setting to look at and the log."""


@dataclass(frozen=True)
class Progress:
    """What happened to one part while starting or watching."""

    part: str
    event: Literal["starting", "waiting", "ready", "restarted"]
    seconds: float
    detail: str = ""


Listener = Callable[[Progress], None]


class Stack:
    """One stack. Use it from the main thread: supervisord ends with the thread that started it."""

    def __init__(self, config: StackConfig, listener: Listener = lambda progress: None) -> None:
        self.config = config
        self._tell = listener
        self._supervisor = supervision.Supervisor(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._family: processes.Family | None = None
        self._undo = ExitStack()
        self._watch = _Restarts()
        self._log_starts: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it answers. Raises `SettingsError` or `StackError`; then call `stop`."""
        preflight.prepare_folders(self.config)
        self._undo.enter_context(preflight.sole_owner(self.config))
        preflight.check(self.config)
        self._launch()
        self._start_and_await(programs.servers(self.config))
        self._migrate()
        self._start_and_await(programs.services(self.config))

    def stop(self) -> None:
        """Stop everything; nothing of the stack lives afterwards. May be called at any time, also twice.

        Signals that come meanwhile are ignored: each part has its time limit.
        """
        with _signals_ignored():
            self._undo.close()

    def check_alive(self) -> None:
        """Raise `StackError` if supervisord is gone or a part keeps dying; report restarts to the listener."""
        if self._family is None:
            raise StackError("the stack was never started")
        for state in self._states():
            if state.state == "FATAL":
                raise self._failure(state.name, "cannot be started again")
            before = self._watch.restarted(state)
            if before is not None:
                self._family.end_group(before)
                self._tell(Progress(state.name, "restarted", 0))
            if self._watch.too_often(state.name):
                raise self._failure(state.name, "keeps dying")

    def watch(self, seconds: float | None = None, every_s: float = 1.0) -> None:
        """Check until the time is over (None: until interrupted)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            self.check_alive()
            time.sleep(every_s)

    @property
    def peak_rss_mb(self) -> float:
        """Highest memory of all parts together so far, shared pages counted once."""
        return self._family.peak_mb if self._family else 0.0

    def kill(self, part: str) -> None:
        """`kill -9` one part, as a test of what follows."""
        self._supervisor.kill(part)

    def log(self, part: str) -> Path:
        """Where a part writes."""
        return self.config.logs / f"{part}.log"

    def _launch(self) -> None:
        self.config.postgres.initialise()
        parts = programs.all_programs(self.config)
        self._log_starts = {part.name: last_words.size(self.log(part.name)) for part in parts}
        configuration = supervision.write_configuration(self.config, parts)
        self._process = supervision.launch(self.config, configuration)
        self._undo.callback(self._end_supervisor, self._process)
        self._family = processes.Family(self._process.pid)
        self._undo.enter_context(self._family.sampling())
        self._await_supervisor(self._process)

    def _await_supervisor(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 30
        while not self._supervisor.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StackError(f"the process manager did not start; see {self.config.logs / 'supervisord.out'}")
            time.sleep(_POLL_S)

    def _end_supervisor(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(sum(part.stop_wait_s for part in programs.all_programs(self.config)) + 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        processes.Family(process.pid).end()

    def _migrate(self) -> None:
        try:
            self.config.postgres.create_database(DATABASE)
            upgrade(self.config.database_url)
        except (psycopg.Error, SQLAlchemyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise StackError(
                f"the database in {self.config.postgres.folder} cannot be used ({reason}): "
                "move that folder away, or set TABWISE_DATA_DIR to another one"
            ) from error

    def _start_and_await(self, parts: list[Program]) -> None:
        began = time.monotonic()
        for part in parts:
            self._supervisor.start(part.name)
            self._tell(Progress(part.name, "starting", 0))
        waiting = list(parts)
        while waiting:
            self._fail_if_ended()
            waiting = [part for part in waiting if not self._is_ready(part, time.monotonic() - began)]
            time.sleep(_POLL_S)

    def _is_ready(self, part: Program, seconds: float) -> bool:
        reason = part.check()
        if reason is None:
            self._tell(Progress(part.name, "ready", seconds))
            return True
        self._tell(Progress(part.name, "waiting", seconds, reason))
        if seconds > self.config.start_timeout_s:
            raise self._failure(part.name, f"did not answer within {seconds:.0f} s (TABWISE_START_TIMEOUT_S): {reason}")
        return False

    def _fail_if_ended(self) -> None:
        """While starting, everything that a part needs is there already: one that ends will end again."""
        for state in self._states():
            self._watch.restarted(state)
            if state.ended:
                raise self._failure(state.name, "did not start")

    def _states(self) -> list[supervision.PartState]:
        try:
            return self._supervisor.states()
        except TemporaryError as error:
            raise StackError(f"the process manager has ended; see {self.config.logs / 'supervisord.log'}") from error

    def _failure(self, part: str, what: str) -> StackError:
        program = next(program for program in programs.all_programs(self.config) if program.name == part)
        words = last_words.last_words(self.log(part), self._log_starts[part])
        words = words or f"it said nothing; its port is TABWISE_{program.port_field.upper()}"
        return StackError(f"{part} {what}: {words.removeprefix(f'{part}: ').rstrip('.')} (log: {self.log(part)})")


@contextmanager
def _signals_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Restarts:
    """Remembers when each part was started again."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._times: dict[str, deque[float]] = {}

    def restarted(self, state: supervision.PartState) -> int | None:
        """The process that the part had last time, where it has another one now."""
        if state.pid == 0:
            return None
        before = self._pids.get(state.name, state.pid)
        self._pids[state.name] = state.pid
        if before == state.pid:
            return None
        self._times.setdefault(state.name, deque(maxlen=_RESTARTS)).append(time.monotonic())
        return before

    def too_often(self, name: str) -> bool:
        """Whether it was started again `_RESTARTS` times within the window."""
        times = self._times.get(name, deque())
        return len(times) == _RESTARTS and times[-1] - times[0] < _RESTART_WINDOW_S
