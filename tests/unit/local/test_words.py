"""What an operator is told: the line of a log that matters, and the editor's settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from deploy.local import continue_config
from deploy.local.config import StackConfig
from deploy.local.last_words import last_words, size


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["starting", "engine: TABWISE_MODEL_PATH: no model", "bye"], "engine: TABWISE_MODEL_PATH: no model"),
        (
            ["LOG: hello", 'FATAL: could not create lock file: "No space"', "LOG: shut down"],
            "FATAL: could not create lock",
        ),
        (["one", "", "two"], "two"),
        ([json.dumps({"event": "database away", "error": "refused", "level": "error"})], "database away: refused"),
        (["{not json"], "{not json"),
        ([], ""),
    ],
)
def test_last_words(tmp_path: Path, lines: list[str], words: str) -> None:
    log = tmp_path / "part.log"
    log.write_text("\n".join(lines))
    assert last_words(log).startswith(words)
    assert bool(last_words(log)) == bool(words)


def test_words_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    assert last_words(log, size(log)) == ""
    log.write_text("TABWISE_OLD: wrong\n")
    start = size(log)
    assert last_words(log, start) == ""
    with log.open("a") as file:
        file.write("now\n")
    assert last_words(log, start) == "now"


def test_stock_continue_gets_a_whole_file_that_points_here(tmp_path: Path) -> None:
    config = StackConfig.isolated(tmp_path)
    document = yaml.safe_load(continue_config.stock(config))
    (model,), (data,) = document["models"], document["data"]
    assert model["apiBase"] == f"{config.gateway_url}/v1"
    assert model["apiKey"] == data["apiKey"] == config.key
    assert "qwen" in model["model"]
    assert "coder" in model["model"]
    assert model["roles"] == ["autocomplete"]
    assert data["destination"] == f"{config.ingest_url}/v1/events/continue"
    assert (data["schema"], data["level"], data["events"]) == ("0.2.0", "all", ["autocomplete"])


def test_the_fork_sends_its_feedback_with_headers(tmp_path: Path) -> None:
    config = StackConfig.isolated(tmp_path)
    options = yaml.safe_load(continue_config.fork(config))["tabAutocompleteOptions"]
    assert options["completionTrackingUrl"] == f"{config.ingest_url}/api/training/submit"
    assert options["completionTrackingHeaders"]["Authorization"] == f"Bearer {config.key}"
