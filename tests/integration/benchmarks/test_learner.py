"""`make bench-learner` on a small cell: both sides train the same, and the lines say what they should."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.learner.cases import Case, Measured
from benchmarks.learner.figures import Different, Sides, check_same, lines


def measured(**changes: Any) -> Measured:
    fields = {"peak_memory_mb": 100.0, "loss": 0.5, "grad_norm": 2.0, "logprob": -7.0, "logprob_last": -6.9}
    return Measured.model_validate(
        {"device": "cpu", "seconds": [0.5, 0.4, 9.0], "tflop": 0.01, "matrix_tflops": 0.05} | fields | changes
    )


def test_lines_give_the_median_step_and_the_ratio() -> None:
    sides = Sides([measured()], [measured(peak_memory_mb=400.0, seconds=[5.0, 5.0, 5.0])])

    by_figure = {line["figure"]: line for line in lines(Case(prompt=1024, completion=32, group=8), sides)}

    assert by_figure["samples_per_s"] == {
        "bench": "learner", "figure": "samples_per_s", "device": "cpu", "prompt": 1024, "completion": 32, "group": 8,
        "ours": 16.0, "trl": 1.6, "ratio": 10.0,
    }  # fmt: skip
    assert by_figure["tokens_per_s"]["ours"] == 16_900  # 16 x 1,056, four digits
    assert by_figure["peak_memory_mb"]["ratio"] == 0.25
    assert by_figure["matrix_rate_share"]["ours"] == 0.4


def test_sides_that_differ_are_not_compared() -> None:
    with pytest.raises(Different, match=r"grad_norm is 2\.0 on our side and 2\.1"):
        check_same(Case(), Sides([measured()], [measured(grad_norm=2.1)]))


def test_a_small_cell_end_to_end() -> None:
    """Two micro-batches on TRL's side, two processes, real libraries."""
    options = ["--prompts", "24", "--groups", "16", "--completion", "5", "--rounds", "1", "--steps", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.learner", *options, "--checkpointing", "off"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "the same on both sides" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["figure"] for line in found] == [
        "samples_per_s", "tokens_per_s", "peak_memory_mb", "matrix_rate_share"
    ]  # fmt: skip
    assert all(line["ours"] > 0 and line["trl"] > 0 and line["group"] == 16 for line in found)
