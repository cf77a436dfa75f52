"""What a person sees of a run: picture, table, live lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from clients.developer.report import TeamProgress
from demo import picture, summary
from demo.screen import WorkScreen, sparkline
from demo.settings import DemoConfig
from tests.unit.demo.builders import result, snapshot


def test_rolling_mean() -> None:
    assert picture.rolling([1, 2, 3, 4], 2) == [1.5, 2.5, 3.5]
    assert picture.rolling([1], 2) == []


def test_publishes_stand_where_the_feedback_was() -> None:
    assert picture.publish_positions(result([0.75] * 30)) == [(11, 1), (21, 2)]


@pytest.mark.parametrize("count", [0, 3, 200])
def test_a_picture_of_any_run(tmp_path: Path, count: int) -> None:
    picture.draw(result([0.75] * count), tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_summary_names_what_matters() -> None:
    out = io.StringIO()
    summary.print_summary(result(), Console(file=out, width=120))
    text = out.getvalue()
    for part in ("base", "v1", "reward +0.100 → +0.150", "100.0% joined", "0 twice", "learning.png", "tensorboard"):
        assert part in text


def test_without_a_terminal_a_line_says_everything(tmp_path: Path) -> None:
    out = io.StringIO()
    screen = WorkScreen(Console(file=out, width=200), DemoConfig(folder=tmp_path))
    with screen:
        screen.ledger(snapshot(3))
        screen.team(TeamProgress(10.0, 30, 20, 4, 5, 15, 0, 0, 20, 0, 0, 0.25))
    assert out.getvalue().count("\n") == 1
    assert "acceptance 25%" in screen.line()
    assert "live v2" in screen.line()
    assert "events 20 (2.0/s)" in screen.line()


def test_sparkline_spans_its_values() -> None:
    assert sparkline([0, 0.5, 1]) == "▁▅█"
    assert sparkline([]) == ""
