"""Samples on disk, so that a run that goes on has the same ones, whatever has become of their sources.

`output/samples/`: `files.jsonl` (each file once), `train.jsonl` and `test.jsonl` (places and prompts), `counts.json`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.trainer.warmstart.files import SourceFile
from services.trainer.warmstart.holes import Hole
from services.trainer.warmstart.samples import FimSample, Samples
from shared.kit.errors import SettingsError

FOLDER = "samples"


def save_samples(samples: Samples, output: Path) -> None:
    """Replaces what is there; whole or not at all."""
    draft, final = output / f"{FOLDER}.tmp", output / FOLDER
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    files = list({id(s.file): s.file for s in [*samples.train, *samples.test]}.values())
    numbers = {id(file): number for number, file in enumerate(files)}
    _write(draft / "files.jsonl", (asdict(file) for file in files))
    for name, side in (("train", samples.train), ("test", samples.test)):
        _write(draft / f"{name}.jsonl", ({"file": numbers[id(s.file)], **_place(s)} for s in side))
    (draft / "counts.json").write_text(json.dumps(samples.counts(), indent=1))
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)


def load_samples(output: Path) -> Samples:
    """Raises `SettingsError` where they are gone."""
    folder = output / FOLDER
    try:
        files = [SourceFile(**row) for row in _read(folder / "files.jsonl")]
        counts = json.loads((folder / "counts.json").read_text())
        sides = [_side(folder / f"{name}.jsonl", files) for name in ("train", "test")]
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise SettingsError(
            f"output: the samples in {folder} are gone or damaged; start anew with --restart"
        ) from error
    return Samples(
        train=sides[0],
        test=sides[1],
        files_read=counts["files_read"],
        files_train=counts["files_train"],
        files_test=counts["files_test"],
        dropped_files=Counter(counts["dropped_files"]),
        dropped_holes=Counter(counts["dropped_holes"]),
    )


def _place(sample: FimSample) -> dict[str, Any]:
    return {"hole": asdict(sample.hole), "prompt": sample.prompt}


def _side(file: Path, files: Sequence[SourceFile]) -> list[FimSample]:
    return [FimSample(files[row["file"]], Hole(**row["hole"]), row["prompt"]) for row in _read(file)]


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    with file.open("w", encoding="utf-8") as writing:
        writing.writelines(json.dumps(row) + "\n" for row in rows)


def _read(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)
