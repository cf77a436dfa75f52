"""Checkpoint folders of a run: which are kept, and the last as a model folder that anything can load.

`final/` holds Hugging Face files alone: no optimiser, and neither lineage nor probe, which are those of a version.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from shared.contracts.names import PROBE_FILE
from shared.kit.errors import SettingsError

FINAL: Final = "final"
REPORT_FILE: Final = "warmstart.json"
_OF_A_VERSION: Final = {PROBE_FILE, "lineage.json"}


def remove_old(output: Path, newest: int, keep: int) -> None:
    """Delete all but the newest `keep` versions up to `newest`."""
    for folder in output.glob("v[0-9]*"):
        number = folder.name[1:]
        if folder.is_dir() and number.isdecimal() and int(number) <= newest - keep:
            shutil.rmtree(folder)


def write_final(output: Path, checkpoint: str | None, report: dict[str, Any]) -> Path:
    """Copy the newest checkpoint's model to `final/`, with what was measured in `warmstart.json`.

    Raises `SettingsError` where no round has changed the model.
    """
    if checkpoint is None:
        raise SettingsError("training: no round has changed the model, so there is nothing to serve; see log.jsonl")
    draft, final = output / f"{FINAL}.tmp", output / FINAL
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for file in Path(checkpoint).iterdir():
        if file.is_file() and file.name not in _OF_A_VERSION:
            shutil.copyfile(file, draft / file.name)
    (draft / REPORT_FILE).write_text(json.dumps(report, indent=1))
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    return final
