from itertools import islice
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from base_model import evaluate as evaluation  # noqa: E402 - needs torch
from base_model import train as training  # noqa: E402
from base_model.data import base_sources, repeats, training_holes  # noqa: E402
from base_model.house import HARBOR  # noqa: E402
from base_model.tokenizer import SPECIAL, load_tokenizer, train_tokenizer  # noqa: E402
from clients.developer.prompts import END_OF_TEXT, FIM_PREFIX, fim_prompt  # noqa: E402

TINY = training.TrainSettings(
    phases=(training.Phase(1, 1.0), training.Phase(1, repeats=0.5)),
    step_tokens=1024,
    hidden=64,
    mlp=64,
    layers=1,
    vocab_size=400,
    tokenizer_modules=20,
    early_step=1,
)


def test_the_tokenizer_gives_back_what_it_is_given() -> None:
    tokenizer = train_tokenizer(base_sources(30, 1), 500)
    text = fim_prompt('def f(x):\n        return x["é"] + 2026', "\n")
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    assert ids.count(tokenizer.convert_tokens_to_ids(FIM_PREFIX)) == 1
    assert tokenizer.eos_token == tokenizer.pad_token == END_OF_TEXT
    assert all(len(tokenizer(token).input_ids) == 1 for token in SPECIAL)
    assert len(tokenizer("2026").input_ids) == 4


def test_training_rows_are_prompts_followed_by_the_rest_of_one_line() -> None:
    holes = list(islice(training_holes(1, 0.5), 50))
    assert holes == list(islice(training_holes(1, 0.5), 50))
    for hole in holes:
        assert hole.prompt.startswith(FIM_PREFIX)
        assert hole.middle
        assert "\n" not in hole.middle
        assert hole.target == hole.middle + END_OF_TEXT


def test_repeats_can_be_copied_from_what_stands_before() -> None:
    for ids, prompt in islice(repeats(range(9, 40), 1), 50):
        length = len(ids) - prompt + 1
        assert ids[-length:] == ids[:length]
        assert set(ids) <= set(range(9, 40))


def test_two_steps_train_a_model_that_loads_and_answers(tmp_path: Path) -> None:
    training.train(tmp_path, TINY)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    report = evaluation.evaluate(tmp_path, HARBOR, moments=4)
    assert report.moments == 4
    assert 0 <= report.exact <= report.oracle <= 1


def test_an_update_lowers_the_loss_and_is_repeatable() -> None:
    def losses() -> list[float]:
        torch.manual_seed(1)
        tokenizer = train_tokenizer(base_sources(20, 1), 400)
        model = training.build_model(tokenizer, TINY)
        batch = next(training.batches(tokenizer, TINY))
        optimizers = training.build_optimizers(model, 1e-3)
        return [training.train_step(model, optimizers, batch, 0.5)[0] for _ in range(4)]

    first = losses()
    assert first[-1] < first[0]
    assert first == losses()


def test_the_saved_tokenizer_is_the_trained_one(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(base_sources(20, 1), 400)
    tokenizer.save_pretrained(tmp_path)
    source = next(base_sources(1, 2))
    assert load_tokenizer(tmp_path)(source).input_ids == tokenizer(source).input_ids
