"""Which checkpoints fit the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.engine.extension import Shapes, difference, read_weights

BASE: Shapes = {"embed": (8, 4), "layer.0.w": (4, 4)}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (BASE, None),
        (BASE | {"lm_head.weight": (8, 4)}, None),
        ({"embed": (8, 4)}, "tensor layer.0.w is missing"),
        (BASE | {"layer.1.w": (4, 4)}, "tensor layer.1.w is not in the base model"),
        (BASE | {"embed": (9, 4)}, "tensor embed has shape [9, 4], not [8, 4]"),
        ({}, "tensor embed is missing"),
    ],
)
def test_difference(found: Shapes, why: str | None) -> None:
    assert difference(BASE, found) == why


def test_a_tied_output_layer_may_be_left_out() -> None:
    assert difference(BASE | {"lm_head.weight": (8, 4)}, BASE) is None


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \*.safetensors file that the engine can see"):
        read_weights(tmp_path)
