"""Settled text on simulated sessions: the bounds that the service is held to."""

from __future__ import annotations

import orjson
import pytest

from benchmarks.settled.__main__ import main


def test_answers_are_right_and_most_places_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--sessions", "6"]) == 0
    figures = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {figure["bench"] for figure in figures} == {"settled"}
    by_name = {(figure["kind"], figure["figure"]): figure for figure in figures}
    for kind in ("settled_text", "typed_out"):
        assert by_name[kind, "precision"]["ours"] >= 0.99
        assert by_name[kind, "recall"]["ours"] >= 0.90
        assert by_name[kind, "recall"]["cases"] > 20
    for after_s in (30, 120, 600):
        assert by_name[f"retention_{after_s}s", "precision"]["ours"] >= 0.97
        assert by_name[f"retention_{after_s}s", "recall"]["ours"] >= 0.90
