"""The warm start as a person runs it: killed with SIGKILL again and again; and published to a running deployment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.trainer import repository
from services.trainer.learner_process import LearnerProcess
from services.trainer.runtime import make_learner
from services.trainer.warmstart.config import WarmStartConfig, load_config
from services.trainer.warmstart.publishing import Publication, check_fits, publish_result
from services.trainer.warmstart.state import RunState, load_state
from shared.contracts.checkpoint import Probe
from shared.kit.errors import SettingsError, TemporaryError
from tests.contract import tiny_model
from tests.integration.trainer.conftest import Bench
from tests.unit.trainer.factories import experience
from tests.unit.trainer.warmstart.conftest import module

COMMAND = [sys.executable, "-m", "services.trainer.warmstart", "--config"]


def write_config(folder: Path, **changes: Any) -> Path:
    """A repository, a configuration for it, and where its output goes."""
    code = folder / "code"
    code.mkdir(parents=True)
    for number in range(12):
        (code / f"module_{number}.py").write_text(module(number))
    given: dict[str, Any] = {
        "model": str(Path("models/tabwise-small").resolve()),
        "output": "out",
        "sources": [{"kind": "folder", "path": "code"}],
        "split": {"test_share": 0.4},
        "rewards": [{"name": "edit_similarity"}, {"name": "exact_match", "weight": 0.5}],
        "training": {"rounds": 6, "prompts_per_round": 3, "group_size": 4},
        "evaluation": {"every": 3, "samples": 4},
        "learner": {"learner_module": "tests.fakes.warm_learner"},
    }
    file = folder / "warmstart.yaml"
    file.write_text(yaml.safe_dump(given | changes))
    return file


def started(file: Path, *options: str) -> subprocess.Popen[str]:
    requests = {"TABWISE_WARM_REQUESTS": str(file.parent / "requests.jsonl"), "OMP_NUM_THREADS": "1"}
    faults = {"TABWISE_FAKE_LEARNER": json.dumps({"step_s": 0.1})}
    return subprocess.Popen(
        [*COMMAND, str(file), *options],
        env=os.environ | requests | faults,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(file: Path, *options: str, status: int = 0) -> str:
    process = started(file, *options)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == status, said
    return said


def requests(file: Path) -> list[dict[str, Any]]:
    written = file.parent / "requests.jsonl"
    return [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []


def by_version(file: Path) -> dict[int, list[str]]:
    return {row["version"]: row["groups"] for row in requests(file) if row["kind"] == "train"}


def test_killed_again_and_again_it_ends_with_the_same_samples_in_the_same_order(tmp_path: Path) -> None:
    calm = write_config(tmp_path / "calm")
    said = finished(calm)
    assert "TABWISE_MODEL_PATH=" in said
    shaken = write_config(tmp_path / "shaken")
    for more in (2, 5, 4):
        seen = len(requests(shaken))
        process = started(shaken)
        while len(requests(shaken)) < seen + more and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.03 * more)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for file in (shaken.parent / "code").glob("module_1*.py"):
            file.unlink()  # what becomes of the sources does not matter any more
    said = finished(shaken)
    assert "going on after round" in said
    assert by_version(shaken) == by_version(calm)
    state = RunState.model_validate_json((shaken.parent / "out" / "state.json").read_bytes())
    assert (state.round, state.checkpoint.version) == (6, 6)
    assert [done.round for done in state.evaluations] == [0, 3, 6]
    assert (shaken.parent / "out" / "final" / "config.json").is_file()
    assert not (shaken.parent / "out" / "final" / "probe.json").exists()


def test_dry_run_shows_three_prompts_and_leaves_nothing(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    said = finished(file, "--dry-run")
    assert said.count("<|fim_prefix|>") == 3
    assert "files read" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["warmstart", "warmstart-gpu"])
def test_the_shipped_configurations_are_valid(name: str) -> None:
    config = load_config(Path("configs") / f"{name}.yaml")
    assert config.output == Path(f"var/{name}").resolve()


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    file = write_config(tmp_path, rewards=[{"name": "exact_mach"}])
    said = finished(file, status=2)
    assert said.startswith("warmstart: rewards[0]: there is no reward 'exact_mach'; known are ")
    assert len(said.splitlines()) == 1
    said = finished(tmp_path / "nothing.yaml", status=2)
    assert "nothing.yaml cannot be read (No such file or directory)" in said


def test_a_terminated_run_says_how_to_go_on(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    process = started(file)
    while len(requests(file)) < 4 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on from here" in said


@pytest.fixture
def deployment(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`bench` with a tiny model, its settings in the environment too."""
    model = tiny_model.build(tmp_path / "model", layers=1, width=32)
    told = {"model_path": str(model), "max_logprob_gap": float("inf"), "tensorboard_dir": None, "max_wait_s": 0}
    bench.settings = bench.settings.model_copy(update=told)
    for name in ("database_url", "checkpoint_root", "model_path"):
        monkeypatch.setenv(f"TABWISE_{name.upper()}", str(getattr(bench.settings, name)))
    monkeypatch.setenv("TABWISE_BROKER_URL", bench.settings.redis_url)
    return bench


def warm_started(bench: Bench, folder: Path, **changes: Any) -> tuple[WarmStartConfig, RunState]:
    """Two rounds of the real learner."""
    training = {"rounds": 2, "prompts_per_round": 3, "group_size": 4, "temperature": 1.0, "max_completion_tokens": 8}
    holes = {"expression": 4, "rest_of_line": 1, "statement": 0, "block": 0, "function_body": 0}
    given = {"model": bench.settings.model_path, "training": training, "holes": holes, "learner": {}}
    prompts = {"prefix_tokens": 64, "suffix_tokens": 32}
    file = write_config(folder, **(given | {"prompts": prompts} | changes))
    finished(file)
    config = load_config(file)
    state = load_state(config)
    assert state is not None
    return config, state


async def test_the_next_online_round_builds_on_what_was_published(deployment: Bench, tmp_path: Path) -> None:
    config, state = warm_started(deployment, tmp_path / "warm")
    assert publish_result(config, state, replace=False) == 1
    assert publish_result(config, state, replace=False) == 1  # again: nothing new
    [row] = deployment.rounds()
    assert (row.version, row.parent_version, row.checkpoint, row.trained) == (1, 0, "v000001", 0)
    assert row.stats["warmstart"]["rounds"] == 2
    warm = Path(str(state.checkpoint.folder)) / "model.safetensors"
    assert (deployment.root / "v000001" / "model.safetensors").read_bytes() == warm.read_bytes()
    assert Probe.model_validate_json((deployment.root / "v000001" / "probe.json").read_bytes()).version == 1
    learner = make_learner(deployment.settings, deployment.metrics)
    try:
        await online_round(deployment, learner)
    finally:
        learner.stop()
    first, second = deployment.rounds()
    assert (second.version, second.parent_version) == (2, 1)
    lineage = json.loads((deployment.root / "v000002" / "lineage.json").read_text())
    assert lineage["parent_lineage"] == first.round_id
    with pytest.raises(SettingsError, match="the deployment is at version 2, and the warm start did not begin there"):
        publish_anew(config, state, deployment)
    assert publish_anew(config, state, deployment, replace=True) == 3
    assert deployment.rounds()[-1].parent_version == 0


async def online_round(bench: Bench, learner: LearnerProcess) -> None:
    rounds = bench.trainer()
    rounds._learner = learner
    await bench.put(*(experience(accepted=index % 2 == 0) for index in range(4)))
    assert await rounds.tick() == "committed"


def publish_anew(config: WarmStartConfig, state: RunState, bench: Bench, *, replace: bool = False) -> int:
    """As if the same weights were another run's."""
    checkpoint = state.checkpoint.model_copy(update={"lineage": f"another {replace}"})
    other = state.model_copy(update={"checkpoint": checkpoint})
    return Publication(config, other, bench.settings, bench.database, replace=replace).commit()


def test_a_busy_trainer_is_waited_for_and_other_shapes_are_refused(deployment: Bench, tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path / "busy"))
    folder = tmp_path / "v000001"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((Path(deployment.settings.model_path) / name).read_bytes())
    shape = {"ranks": 1, "zero_stage": 2, "dtype": "bfloat16", "adapter": "none"}
    (folder / "lineage.json").write_text(json.dumps(shape))
    state = RunState.model_validate({"run_id": "x", "data": {}})
    state = state.model_copy(update={"checkpoint": state.checkpoint.model_copy(update={"folder": str(folder)})})
    with pytest.raises(SettingsError, match="TABWISE_LEARNER_DTYPE=float32, but the warm start trained with bfloat16"):
        check_fits(config, state, deployment.settings)
    (folder / "lineage.json").write_text(json.dumps(shape | {"dtype": "float32"}))
    check_fits(config, state, deployment.settings)
    (folder / "config.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"TABWISE_MODEL_PATH: .* has another config\.json"):
        check_fits(config, state, deployment.settings)
    with repository.only_trainer(deployment.database), pytest.raises(TemporaryError, match="in a round"):
        Publication(config, state, deployment.settings, deployment.database, replace=False, wait_s=0.1).commit()
