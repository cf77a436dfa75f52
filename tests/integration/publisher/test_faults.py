"""What goes wrong between commit and live: the old version serves on, it is said why, and nothing is left half."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.publisher.loading import Loader
from services.publisher.replicas import Replica
from services.publisher.rollout import Rollout
from services.publisher.upload import ServingFolder
from shared.kit.errors import TemporaryError
from tests.integration.publisher.conftest import Bench


@pytest.fixture
def live(bench: Bench) -> Bench:
    """Version 1 is live."""
    bench.commit(1)
    assert bench.tick() == "published"
    return bench


def assert_failed(bench: Bench, version: int, why: str) -> None:
    """It failed for this reason, version 1 serves on, and it is not tried again."""
    assert bench.serves(1)
    assert bench.checkpoint(version).status == "failed"
    assert why in (bench.checkpoint(version).error or "")
    assert bench.statuses()[1] == "live"
    loads = bench.engine.calls.count("POST /collective_rpc")
    assert bench.tick(60) == "idle"
    assert bench.engine.calls.count("POST /collective_rpc") == loads
    assert bench.figure("live_version") == 1


def test_the_engine_refuses_to_load(live: Bench) -> None:
    live.engine.faults.reload_refused = "v000002"
    live.commit(2)
    assert live.tick() == "failed"
    deployment = live.deployments()[1]
    assert (deployment.status, deployment.rolled_back) == ("failed", True)
    assert live.figure("failures_total", reason="refused") == 1
    assert live.figure("rollbacks_total") == 1
    live.tick()
    assert_failed(live, 2, "/collective_rpc answered 500")


def test_the_engine_refuses_every_load(live: Bench) -> None:
    live.engine.faults.reload_status = 500
    live.commit(2)
    assert live.tick() == "waiting"
    assert live.serves(1), "its weights were never touched"
    assert live.checkpoint(2).status == "uploaded", "not the version's fault"
    live.engine.faults.reload_status = None
    assert live.tick(60) == "published"
    assert live.serves(2)


def test_weights_that_are_not_what_the_learner_saw(live: Bench) -> None:
    """Loaded without an error, but the logprobs are others: verified, not assumed."""
    live.commit(2, probe=[-0.5] * (len(live.store.manifest(1).probe.logprobs)))  # type: ignore[union-attr]
    assert live.tick() == "failed"
    live.tick()
    assert_failed(live, 2, "the probe's logprobs differ by")
    assert live.figure("failures_total", reason="probe") == 1


def test_a_load_that_changes_nothing_is_noticed(live: Bench) -> None:
    live.engine.faults.reload_changes_nothing = True
    live.commit(2)
    assert live.tick() == "failed"
    assert live.checkpoint(2).status == "failed"
    live.engine.faults.reload_changes_nothing = False
    live.tick()
    assert_failed(live, 2, "the probe's logprobs differ by")


def test_a_better_version_follows_a_failed_one(live: Bench) -> None:
    live.engine.faults.reload_refused = "v000002"
    live.commit(2)
    live.tick()
    live.commit(3)
    assert live.tick() == "published"
    assert live.serves(3)
    assert live.statuses() == {1: "retired", 2: "failed", 3: "live"}


def test_an_engine_that_hangs_in_the_load(live: Bench) -> None:
    """No answer may have any cause: tried again, resumed meanwhile, given up after three times."""
    live.engine.faults.reload_delay_s = 5.0
    live.commit(2)
    assert live.tick() == "waiting"
    assert live.checkpoint(2).status == "uploaded"
    assert not live.engine.paused
    assert live.tick() == "waiting"
    assert len(live.deployments()) == 2, "not at once again"
    assert live.tick(60) == "waiting"
    assert live.tick(60) == "failed"
    live.engine.faults.reload_delay_s = 0.0
    live.tick(60)
    assert_failed(live, 2, "does not answer /collective_rpc")


def test_an_engine_that_recovers_from_a_hang(live: Bench) -> None:
    live.engine.faults.reload_delay_s = 5.0
    live.commit(2)
    live.tick()
    live.engine.faults.reload_delay_s = 0.0
    assert live.tick(60) == "published"
    assert live.serves(2)


def test_a_corrupted_file_in_the_storage(live: Bench) -> None:
    live.commit(2)
    stored = Path(live.settings.storage_url.removeprefix("file://")) / "v000002"
    live.publisher()._store_newest()
    (stored / "model.safetensors").write_bytes(b"rotten")
    assert live.tick() == "failed"
    assert sorted(path.name for path in Path(live.settings.serving_root).iterdir()) == ["v000001"]
    live.tick()
    assert_failed(live, 2, "v000002/model.safetensors in the storage is not what its manifest says")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("probe.json", b"{", "probe.json is not valid"),
        ("probe.json", b'{"version": 9, "token_ids": [1, 2], "logprobs": [-1]}', "not the probe of version 2"),
        ("probe.json", None, "v000002 has no probe.json"),
        ("model.safetensors", None, "no *.safetensors"),
    ],
)
def test_a_folder_that_breaks_the_contract(live: Bench, name: str, content: bytes | None, why: str) -> None:
    folder = live.commit(2)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    live.tick()
    assert_failed(live, 2, why)
    assert live.store.versions() == [1]


def test_a_folder_that_is_not_mounted(live: Bench) -> None:
    live.round(2, "v000002")
    assert live.tick() == "waiting"
    assert live.serves(1)
    assert live.statuses() == {1: "live"}, "nothing is decided while it may come back"


def test_the_storage_is_away(live: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    live.commit(2)
    with monkeypatch.context() as patched:
        patched.setattr(live.store, "put", _away)
        assert live.tick() == "waiting"
        live.engine.restart()
        live.tick()
        assert live.serves(1), "a replica is brought back meanwhile"
    assert live.tick() == "published"
    assert live.serves(2)


def _away(*_: object, **__: object) -> None:
    raise TemporaryError("the storage does not answer")


def test_killed_between_upload_and_row(bench: Bench) -> None:
    bench.commit(1)
    manifest = bench.publisher()
    manifest._store_newest()
    with bench.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM checkpoints")
    bench.publisher()
    assert bench.tick() == "published"
    assert bench.serves(1)


def test_killed_between_upload_and_load(bench: Bench) -> None:
    bench.commit(1)
    bench.publisher()._store_newest()
    bench.publisher()
    assert bench.tick() == "published"
    assert bench.serves(1)


def test_killed_while_the_engine_is_paused(live: Bench) -> None:
    """Weights of one version under the label of another, and users held: the next look repairs both."""
    live.commit(2)
    live.publisher()._store_newest()
    with _replica(live) as replica:
        replica.pause()
        replica.load(str(Path(live.settings.checkpoint_root) / "v000002"))
    live.publisher()
    assert live.tick() == "published"
    assert live.serves(2)


def test_killed_between_resume_and_verification(live: Bench) -> None:
    """The label is right, but nobody has verified it."""
    live.commit(2)
    publisher = live.publisher()
    publisher._store_newest()
    with _replica(live) as replica:
        replica.set_version(2)
    live.publisher()
    assert live.tick() == "published"
    assert live.serves(2)
    assert live.deployments()[-1].max_logprob_diff is not None


def test_killed_between_verification_and_live(live: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    live.commit(2)
    monkeypatch.setattr(Rollout, "_make_live", _killed)
    with pytest.raises(KeyboardInterrupt):
        live.tick()
    monkeypatch.undo()
    live.publisher()
    assert live.tick() == "published"
    assert live.statuses() == {1: "retired", 2: "live"}
    assert len(live.deployments()) == 2, "it is not loaded again"


def _killed(*_: object) -> bool:
    raise KeyboardInterrupt


def test_a_replica_that_restarted(live: Bench) -> None:
    live.engine.restart()
    assert live.engine.weight_version == "default"
    assert live.tick() == "published"
    assert live.serves(1)
    assert live.statuses() == {1: "live"}


def test_a_replica_with_a_label_of_nobody(live: Bench) -> None:
    live.engine.weight_version = "somebody-else"
    assert live.tick() == "published"
    assert live.serves(1)


def test_the_live_version_no_longer_loads_after_a_restart(live: Bench) -> None:
    """It was right before: kept, tried again later, and the base model serves meanwhile under its own label."""
    live.engine.restart()
    live.engine.faults.reload_refused = "v000001"
    assert live.tick() == "waiting"
    assert live.serves(0)
    assert live.statuses() == {1: "live"}
    pauses = live.engine.calls.count("POST /pause")
    live.tick()
    assert live.engine.calls.count("POST /pause") == pauses, "users are not paused every tick"
    live.engine.faults.reload_refused = None
    assert live.tick(60) == "published"
    assert live.serves(1)


def test_a_replica_that_is_away(bench: Bench) -> None:
    bench.engine.stop()
    bench.commit(1)
    assert bench.tick() == "waiting"
    assert bench.statuses() == {1: "uploaded"}
    assert bench.figure("failures_total", reason="unreachable") == 1
    bench.engine.start()
    assert bench.tick() == "published"


def test_the_database_is_away(bench: Bench) -> None:
    bench.database.dispose()
    from shared.db.engine import make_engine

    bench.database = make_engine("postgresql+psycopg://tabwise@127.0.0.1:1/tabwise", connect_timeout_s=1)
    bench.publisher()
    with pytest.raises(TemporaryError, match="database"):
        bench.tick()


def test_a_pause_that_fails_is_undone(live: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    live.commit(2)

    def half(self: Replica) -> None:
        self._ask("POST", "/pause", params={"mode": "keep"})
        raise TemporaryError("timed out")

    monkeypatch.setattr(Replica, "pause", half)
    assert live.tick() == "waiting"
    assert live.serves(1)
    assert not live.engine.paused
    monkeypatch.undo()
    assert live.tick() == "published"


def test_the_serving_folder_is_damaged(live: Bench) -> None:
    """Every load goes by verified bytes."""
    (Path(live.settings.serving_root) / "v000001" / "model.safetensors").write_bytes(b"torn")
    live.engine.restart()
    assert live.tick() == "published"
    assert live.serves(1)


def test_a_loader_restores_the_first_that_loads(live: Bench) -> None:
    live.engine.faults.reload_refused = "v0000"
    serving = ServingFolder(live.store, Path(live.settings.serving_root), None)
    with _replica(live) as replica:
        attempt = Loader(serving, live.metrics, probe_tolerance=0.02).bring(replica, 7, None, [1, 0])
    assert (attempt.restored, attempt.definite) == (0, True)
    assert live.serves(0)


def _replica(bench: Bench) -> Replica:
    return Replica(bench.engine.url, "tabwise", admin_timeout_s=2.0, load_timeout_s=1.0)
