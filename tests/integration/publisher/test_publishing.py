"""From a committed round to a live version, and back to an earlier one."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from services.publisher import operator
from services.publisher.repository import only_publisher
from shared.kit.errors import InvalidMessage, TemporaryError
from tests.fakes.engine import FakeEngine
from tests.integration.publisher.conftest import Bench


def test_nothing_committed(bench: Bench) -> None:
    assert bench.tick() == "idle"
    assert bench.serves(0)
    assert bench.engine.calls.count("POST /pause") == 0


def test_a_version_is_stored_loaded_verified_and_live(bench: Bench) -> None:
    folder = bench.commit(1)
    assert bench.tick() == "published"
    assert bench.serves(1)
    row = bench.checkpoint(1)
    assert (row.status, row.parent_version, row.error, row.live_at) == ("live", 0, None, bench.now)
    manifest = bench.store.manifest(1)
    assert manifest is not None
    assert [file.name for file in manifest.files] == ["config.json", "model.safetensors", "probe.json"]
    assert row.size_bytes == sum((folder / file.name).stat().st_size for file in manifest.files)
    (deployment,) = bench.deployments()
    assert (deployment.status, deployment.rolled_back, deployment.version) == ("live", False, 1)
    assert deployment.max_logprob_diff is not None
    assert deployment.max_logprob_diff < 1e-9
    assert 0 < deployment.pause_s < 1
    assert bench.engine.prefix_cache_resets == 1


def test_figures(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    name = bench.engine.url.removeprefix("http://")
    assert bench.figure("live_version") == 1
    assert bench.figure("replica_version", replica=name) == 1
    assert bench.figure("versions_total", status="live") == 1
    assert bench.figure("publish_seconds_count") == 1
    assert bench.figure("publish_seconds_sum") == pytest.approx(2.0)
    assert bench.figure("pause_seconds_count") == 1
    assert bench.figure("probe_max_diff_nats_count") == 1
    for stage in ("upload", "materialise", "load", "verify"):
        assert bench.figure("stage_seconds_count", stage=stage) == 1
    assert bench.figure("uploaded_bytes_total") == bench.checkpoint(1).size_bytes


def test_the_admin_calls_are_in_the_safe_order(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    admin = [call for call in bench.engine.calls if call.startswith("POST")]
    assert admin == [
        "POST /pause",
        "POST /collective_rpc",
        "POST /update_weight_version",
        "POST /reset_prefix_cache",
        "POST /resume",
        "POST /v1/completions",
    ]


def test_in_place_nothing_is_touched(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    before = len(bench.engine.calls)
    assert [bench.tick() for _ in range(3)] == ["idle"] * 3
    assert {call.split()[0] for call in bench.engine.calls[before:]} == {"GET"}
    assert len(bench.deployments()) == 1


def test_superseded_versions_are_skipped(bench: Bench) -> None:
    for version in (1, 2, 3):
        bench.commit(version)
    bench.tick()
    assert bench.statuses() == {3: "live"}
    assert bench.serves(3)


def test_the_next_version_retires_the_last(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    bench.commit(2)
    assert bench.tick() == "published"
    assert bench.statuses() == {1: "retired", 2: "live"}


def test_only_the_newest_folders_are_kept_for_serving(bench: Bench) -> None:
    bench.publisher(keep_versions=2)
    for version in range(1, 6):
        bench.commit(version)
        bench.tick()
    assert sorted(path.name for path in Path(bench.settings.serving_root).iterdir()) == ["v000004", "v000005"]
    assert bench.store.versions() == [1, 2, 3, 4, 5]


def test_requests_in_flight_survive_and_know_their_versions(bench: Bench) -> None:
    bench.engine.faults.token_delay_s = 0.02
    bench.commit(1)
    chunks: list[str] = []

    def generate() -> None:
        body = {"model": "tabwise", "prompt": "def", "max_tokens": 40, "stream": True, "ignore_eos": True, "seed": 3}
        with httpx.stream("POST", f"{bench.engine.url}/v1/completions", json=body, timeout=20) as answer:
            chunks.extend(line for line in answer.iter_lines() if line)

    user = threading.Thread(target=generate)
    user.start()
    while bench.engine.tokens_sampled < 3:
        pass
    assert bench.tick() == "published"
    user.join()
    assert chunks[-1] == "data: [DONE]"
    assert bench.engine.aborted == 0
    assert any('"weight_version": "default"' in chunk for chunk in chunks)


def test_two_publishers_never_work_at_once(bench: Bench) -> None:
    bench.commit(1)
    with only_publisher(bench.database) as mine:
        assert mine
        assert bench.tick() == "busy"
    assert bench.tick() == "published"


def test_engines_that_see_the_folder_elsewhere(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mounted").symlink_to(bench.settings.serving_root)
    bench.publisher(engine_serving_root=str(tmp_path / "mounted"))
    bench.commit(1)
    assert bench.tick() == "published"
    assert bench.engine.weights_path == str(tmp_path / "mounted" / "v000001")


def test_two_replicas(bench: Bench) -> None:
    with FakeEngine() as second:
        bench.publisher(engine_urls=f"{bench.engine.url},{second.url}/")
        bench.commit(1)
        assert bench.tick() == "published"
        assert bench.serves(1)
        assert bench.serves(1, second)
        second.faults.reload_refused = "v000002"
        bench.commit(2)
        assert bench.tick() == "failed"
        assert bench.serves(1), "the first one is taken back too"
        assert bench.serves(1, second)
        assert bench.statuses() == {1: "live", 2: "failed"}
        assert bench.tick() == "idle"


def test_a_replica_that_is_away_is_brought_up_later(bench: Bench) -> None:
    with FakeEngine() as second:
        second.stop()
        bench.publisher(engine_urls=f"{bench.engine.url},{second.url}")
        bench.commit(1)
        assert bench.tick() == "published"
        assert bench.tick() == "waiting"
        second.start()
        assert bench.tick() == "published"
        assert bench.serves(1, second)


def test_rollback_pins_and_follow_unpins(bench: Bench) -> None:
    for version in (1, 2):
        bench.commit(version)
        bench.tick()
    operator.pin_version(bench.database, 1)
    assert bench.tick() == "published"
    assert bench.serves(1)
    assert bench.statuses() == {1: "live", 2: "retired"}
    assert operator.await_live(bench.database, 1, 1.0) < 1.0
    bench.commit(3)
    assert bench.tick() == "idle"
    assert bench.statuses() == {1: "live", 2: "retired", 3: "uploaded"}, "stored, not served"
    assert bench.figure("pinned") == 1
    assert operator.follow_newest(bench.database) == 1
    assert bench.tick() == "published"
    assert bench.serves(3)


def test_rollback_to_the_base_model(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    operator.pin_version(bench.database, 0)
    assert bench.tick() == "published"
    assert bench.serves(0)
    assert bench.statuses() == {1: "retired"}
    assert bench.tick() == "idle"


def test_rollback_to_a_version_that_is_only_in_the_storage(bench: Bench) -> None:
    bench.publisher(keep_versions=1)
    for version in (1, 2, 3):
        bench.commit(version)
        bench.tick()
    assert not (Path(bench.settings.serving_root) / "v000001").exists()
    operator.pin_version(bench.database, 1)
    assert bench.tick() == "published"
    assert bench.serves(1)


def test_what_cannot_be_rolled_back_to(bench: Bench) -> None:
    with pytest.raises(InvalidMessage, match="no stored version 7"):
        operator.pin_version(bench.database, 7)
    bench.commit(1, probe=[-1.0])
    bench.tick()
    with pytest.raises(InvalidMessage, match=r"version 1 failed .*probe\.json"):
        operator.pin_version(bench.database, 1)
    with pytest.raises(TemporaryError, match="is the publisher running"):
        operator.await_live(bench.database, 9, 0.0)


def test_the_table_of_versions(bench: Bench) -> None:
    bench.commit(1)
    bench.tick()
    table = operator.versions_table(bench.database)
    assert table.title == "live: version 1, following the newest"
    assert table.row_count == 2
