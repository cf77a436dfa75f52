"""`make chaos-ingest`, three rounds: ingest, Redis and PostgreSQL die by `kill -9` under load, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(300)
def test_three_kills_lose_and_double_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.chaos_ingest", "--rounds", "3", "--developers", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    figures = {one["figure"]: one["ours"] for one in found}
    assert figures, done.stderr[-2000:]
    assert (figures["lost"], figures["duplicated"], figures["wrong"], figures["drained"]) == (0, 0, 0, True)
    assert (figures["kills_ingest"], figures["kills_redis"], figures["kills_postgres"]) == (1, 1, 1)
    assert figures["acknowledged"] > 20
    assert done.returncode == 0
