"""`module` runs a program of the project with the settings of the stack's services."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deploy.local.config import REPOSITORY

PRINT = "import os; print(os.environ['TABWISE_DATABASE_URL'], os.environ['TABWISE_CHECKPOINT_ROOT'])"


def test_a_module_gets_the_stack_s_settings_its_arguments_and_its_exit_status(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.local", "module", "--data-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "timeit", "-n", "1", "-r", "1", PRINT], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "15432/tabwise" in done.stdout
    assert str(tmp_path / "checkpoints") in done.stdout
    failed = subprocess.run([*command, "no_such_module"], cwd=REPOSITORY, capture_output=True, check=False)
    assert failed.returncode == 1
