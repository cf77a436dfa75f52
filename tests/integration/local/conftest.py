"""Stacks with real servers and process manager, and stand-ins for the services, which have tests of their own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import programs
from deploy.local.config import StackConfig
from deploy.local.programs import Program

ServiceCode = dict[str, str]
"""Service name → Python code that it runs; `PORT` stands for its port."""

SERVES = (
    "from http.server import HTTPServer, SimpleHTTPRequestHandler as Handler\n"
    "HTTPServer(('127.0.0.1', PORT), Handler).serve_forever()"
)
"""Answers every request."""


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """Passes for a model as far as the checks before the start look."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def config(model_folder: Path) -> Iterator[StackConfig]:
    """A stack of its own, in a folder that PostgreSQL's account can reach."""
    with tempfile.TemporaryDirectory(prefix="tabwise-stack-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield StackConfig.isolated(Path(folder) / "var", model_path=str(model_folder), start_timeout_s=20)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[ServiceCode], None]:
    """Replace the services by pieces of Python code."""

    def replace(code: ServiceCode) -> None:
        def services(config: StackConfig) -> list[Program]:
            return [_program(config, name, text) for name, text in code.items()]

        monkeypatch.setattr(programs, "services", services)

    return replace


def _program(config: StackConfig, name: str, code: str) -> Program:
    port = config.gateway_port
    command = [sys.executable, "-c", code.replace("PORT", str(port))]
    return Program(name, command, lambda: programs._http(f"http://127.0.0.1:{port}/"), 30, "gateway_port")
