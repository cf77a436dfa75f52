"""Wrong settings are one sentence that names the setting; the package alone does not import torch."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import Gemma2Config, GraniteConfig, MistralConfig, PretrainedConfig, Qwen2Config

from services.trainer.learner.engine import deepspeed_config
from services.trainer.learner.model import base_folder, load_model
from services.trainer.learner_api import LearnerConfig
from services.trainer.settings import TrainerSettings
from shared.kit.errors import SettingsError


def test_bfloat16_needs_a_stage_with_master_weights() -> None:
    with pytest.raises(SettingsError, match="TABWISE_ZERO_STAGE"):
        deepspeed_config(LearnerConfig(model_path="m", dtype="bfloat16", zero_stage=0))


def test_bfloat16_sums_gradients_in_single_precision_and_checks_them() -> None:
    settings = deepspeed_config(LearnerConfig(model_path="m", dtype="bfloat16", zero_stage=2))

    assert settings["bf16"] == {"enabled": True, "check_grad_overflow": True}
    assert settings["data_types"] == {"grad_accum_dtype": "fp32"}


def test_missing_model_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="TABWISE_MODEL_PATH: /no/such is neither"):
        base_folder("/no/such")


def test_empty_model_folder_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"TABWISE_MODEL_PATH: .* does not load"):
        load_model(tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("config", "feature"),
    [
        (Qwen2Config(use_sliding_window=True, sliding_window=8), "sliding-window attention"),
        (MistralConfig(sliding_window=8), "sliding-window attention"),
        (Gemma2Config(), "soft-capped attention, logit soft-capping, sliding-window attention"),
        (GraniteConfig(logits_scaling=2.0), "scaled logits"),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_what_we_would_get_wrong_is_refused(config: PretrainedConfig, feature: str, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(SettingsError, match=f"does not train models with {feature}"):
        load_model(tmp_path, torch.float32)


def test_started_by_hand_it_says_who_starts_it() -> None:
    done = subprocess.run([sys.executable, "-m", "services.trainer.learner"], capture_output=True, text=True, env={})

    assert done.returncode == 2
    assert done.stderr.strip() == "TABWISE_LEARNER_CONFIG is not set: the learner is started by the trainer"


def test_package_and_packing_are_torch_free() -> None:
    code = "import sys, services.trainer.learner.packing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_setting_of_the_learner_reaches_it() -> None:
    told = {"loss": "clip", "importance": "geometric_mask", "kl_estimator": "k2", "aggregation": "dr_grpo"}
    told |= {"adapter": "lora", "lora_targets": "q_proj", "offload": "optimizer"}
    figures: dict[str, float] = {"max_completion_tokens": 32, "max_logprob_gap": math.inf, "stale_importance_cap": 0.9}
    figures |= {"lora_rank": 8, "lora_alpha": 4.0}
    config = TrainerSettings.model_validate(told | figures).learner_config()

    again = LearnerConfig.model_validate_json(config.model_dump_json())
    assert again.model_dump(include={*told, *figures}) == told | figures


def test_defaults_are_the_same_on_both_sides() -> None:
    """A learner that is built without the trainer (tests, benchmarks) learns as the service does, but for its rate."""
    config = TrainerSettings().learner_config().model_dump()
    plain = LearnerConfig(model_path=config["model_path"]).model_dump()
    differing = {name for name in plain if plain[name] != config[name]}
    assert differing == {"learning_rate", "tensorboard_dir", "threads"}
