"""`python -m benchmarks.learning` with a tiny budget on a tiny model: a real learner process, resumed results."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.learning.__main__ import main
from tests.contract import tiny_model

pytestmark = pytest.mark.timeout(120)


def test_runs_prints_draws_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tiny_model.build(tmp_path / "model", width=32), tmp_path / "out"
    options = ["--seeds", "1", "--events", "32", "--every", "16", "--moments", "4"]
    options += ["--algorithms", "ours@1e-3", "--model", str(model), "--out", str(out)]

    assert main(options) == 0
    printed = capsys.readouterr()
    lines = [orjson.loads(line) for line in printed.out.splitlines() if line.startswith("{")]
    assert {line["bench"] for line in lines} == {"learning"}
    (counts,) = [line["counts"] for line in lines if line["figure"] == "run"]
    assert counts.get("accepted", 0) + counts["rejected"] == 32
    assert counts["settled"] > 10
    assert counts["version"] == counts["rounds"] >= 1
    assert counts["samples"] == 8 * counts["usable"]
    events = {line["events"] for line in lines if line["figure"] == "kl_nats_per_token"}
    assert events == {0, 16, 32}
    assert (out / "learning.png").is_file()

    monkeypatch.setattr("benchmarks.learning.run.Run", None)  # nothing is run again
    assert main(options) == 0
    again = capsys.readouterr().out.splitlines()
    assert [orjson.loads(line) for line in again] == lines
    assert main([*options, "--moments", "5"]) == 2
    assert "was made with other settings" in capsys.readouterr().err
