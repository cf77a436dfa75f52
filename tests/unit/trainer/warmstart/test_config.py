"""The YAML file: one sentence for what is wrong, and where relative paths start."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.trainer.warmstart.config import WarmStartConfig, load_config
from shared.kit.errors import SettingsError
from tests.unit.trainer.warmstart.conftest import Configure

GOOD = """
model: model
output: out
sources: [{kind: folder, path: code}]
rewards: [{name: exact_match}]
"""


def load(folder: Path, text: str) -> WarmStartConfig:
    file = folder / "warmstart.yaml"
    file.write_text(text)
    return load_config(file)


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config = load(tmp_path, GOOD)
    assert config.output == tmp_path / "out"
    assert config.model == str(tmp_path / "model")
    assert config.sources[0].path == tmp_path / "code"  # type: ignore[union-attr]


def test_a_model_that_is_no_folder_stays_a_name(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD.replace("model: model", "model: Qwen/Qwen2.5-Coder-1.5B")).model.startswith("Qwen/")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("traning: {}", "traning: there is no such key; allowed are model, output, seed, sources"),
        ("training: {round: 3}", r"training\.round: there is no such key; allowed are rounds, prompts_per_round"),
        ("training: {rounds: 0}", r"training\.rounds: Input should be greater than or equal to 1"),
        ("training: {advantage: ppo}", r"training\.advantage: Input should be 'grpo', 'dr_grpo', 'rloo'"),
        ("learner: {learning_rte: 1}", r"learner\.learning_rte: there is no such key; allowed are .*learning_rate"),
        ("learner: {kl_coef: -1}", r"learner\.kl_coef: Input should be greater than or equal to 0"),
        ("learner: {max_row_tokens: 128}", r"learner\.max_row_tokens: must be at least 592"),
        ("prompts: {family: gpt}", r"prompts\.family: there is no model family 'gpt'; known are qwen"),
        ("holes: {rest_of_line: 0, expression: 0, statement: 0, block: 0, function_body: 0}", "holes: one of the"),
        ("filters: {licences: {allowed: [mit]}}", r"filters\.licences\.allowed: there is no such key; allowed are al"),
        ("sources: [{kind: folder}]", r"sources\[0\]\.path: is missing"),
        ("sources: [{kind: folder, path: x, glob: y}]", r"sources\[0\]\.glob: there is no such key; allowed are inc"),
        ("sources: [{kind: svn, path: x}]", r"sources\[0\]: Input tag 'svn' found .* 'folder', 'git', 'jsonl', 'data"),
        ("sources: [{kind: jsonl, path: x, columns: {txt: y}}]", r"sources\[0\]\.columns\.txt: there is no such key"),
        ("- x", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, change: str, sentence: str) -> None:
    (tmp_path / "model").mkdir(exist_ok=True)
    key = change.partition(":")[0]
    kept = "\n".join(line for line in GOOD.splitlines() if not line.startswith(f"{key}:"))
    with pytest.raises(SettingsError, match=sentence) as raised:
        load(tmp_path, f"{kept}\n{change}\n")
    assert "\n" not in str(raised.value)


def test_the_learners_settings_are_the_trainers(configure: Configure) -> None:
    config = configure(learner={"learning_rate": 3e-5, "learner_dtype": "bfloat16"})
    learner = config.learner.settings(model_path="m").learner_config()
    assert (learner.learning_rate, learner.dtype, learner.model_path) == (3e-5, "bfloat16", "m")


def test_the_environment_does_not_reach_the_learner(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_LEARNING_RATE", "0.5")
    assert configure().learner.settings().learning_rate < 0.5
