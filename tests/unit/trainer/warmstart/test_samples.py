"""From sources to samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.trainer.warmstart.samples import build_samples
from shared.fim import parse
from shared.kit.errors import SettingsError
from tests.unit.trainer.warmstart.conftest import Configure


def test_samples_are_the_same_each_time_and_no_file_is_on_both_sides(configure: Configure) -> None:
    first, again = build_samples(configure()), build_samples(configure())
    assert [s.sample_id for s in first.train] == [s.sample_id for s in again.train]
    assert [s.prompt for s in first.test] == [s.prompt for s in again.test]
    assert not {s.path for s in first.train} & {s.path for s in first.test}
    assert {s.path for s in first.train} > {first.train[0].path}


def test_the_seed_changes_places_and_order(configure: Configure) -> None:
    one, two = build_samples(configure(seed=1)), build_samples(configure(seed=2))
    assert [s.sample_id for s in one.train] != [s.sample_id for s in two.train]
    assert {s.path for s in one.test} == {s.path for s in two.test}


def test_a_prompt_is_of_the_models_family(configure: Configure) -> None:
    for sample in build_samples(configure(prompts={"family": "qwen", "prefix_tokens": 50})).train:
        place = parse(sample.prompt)
        assert place is not None
        assert sample.prefix.endswith(place.prefix)
        assert sample.suffix.startswith(place.suffix.removesuffix("\n")[:20])


def test_limits_and_references_too_long_for_a_completion(configure: Configure) -> None:
    samples = build_samples(configure(prompts={"max_train": 5, "max_test": 3}))
    assert (len(samples.train), len(samples.test)) == (5, 3)
    short = build_samples(configure(training={"max_completion_tokens": 24}))
    assert short.dropped_holes["too_long"] > 0
    assert short.counts()["dropped_holes"] == dict(short.dropped_holes)


def test_nothing_left_says_why(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.md").write_text("words")
    with pytest.raises(SettingsError, match="nothing is left to train on: 1 files read, dropped: 1 language"):
        build_samples(configure(sources=[{"kind": "folder", "path": str(tmp_path / "empty")}]))


def test_a_model_without_tokenizer_is_named(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"model: .* has no tokenizer\.json"):
        build_samples(configure(model=str(tmp_path)))
