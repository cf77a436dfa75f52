"""A child process that is spoken to in JSON, one value per line in each direction."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LIMIT_S = 20.0


class JsonLines:
    """The process for the length of a `with` block."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._said: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, value: Any) -> None:
        """Write one line."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(value) + "\n")
        self._child.stdin.flush()

    def receive(self, limit_s: float = LIMIT_S) -> Any:
        """The next line."""
        try:
            line = self._said.get(timeout=limit_s)
        except queue.Empty:
            raise TimeoutError(f"nothing came within {limit_s} s") from None
        assert line is not None, f"the process ended with status {self._child.wait(5)}"
        return json.loads(line)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._said.put(line)
        self._said.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.terminate()
        try:
            self._child.wait(5)
        finally:
            self._child.kill()
            self._child.wait()
        self._reader.join(5)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
