"""Sampling: the learner's own logprobs, whatever the batch; ends where it should; the same seed says the same."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedModel

from services.trainer.learner.batch import make_batch
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import plan_lanes
from services.trainer.learner.sampling import Sampler, SamplingRefused, draw
from services.trainer.learner_api import CheckpointRef, SampledGroup, SampleRequest, TrainGroup, TrainSample
from tests.integration.learner.support import VOCAB, write_base

CPU = torch.device("cpu")
BASE = CheckpointRef(version=0, lineage="base", folder=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    """Sharper than random weights are, so that temperatures and contexts matter; and ready to train."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.train()


@pytest.fixture(scope="module")
def sampler(folder: Path) -> Sampler:
    return Sampler(folder, CPU)


def sample(sampler: Sampler, model: PreTrainedModel, request: SampleRequest) -> list[SampledGroup]:
    prepared = sampler.prepare(request, model)
    return sampler.sample(model, prepared, range(len(prepared.prompts)))


def request(**given: object) -> SampleRequest:
    return SampleRequest.model_validate({"base": BASE, "prompts": [[1, 2, 3]], "max_tokens": 12, "seed": 7} | given)


def learner_logprobs(model: PreTrainedModel, group: SampledGroup, temperature: float) -> list[float]:
    """As a training step computes them: one packed lane."""
    samples = [
        TrainSample(token_ids=s.token_ids, behaviour_logprobs=s.logprobs, credited_tokens=len(s.token_ids), advantage=1)
        for s in group.samples
    ]
    packed = TrainGroup(group_id="g", prompt_token_ids=group.prompt_token_ids, temperature=temperature, samples=samples)
    with torch.no_grad():
        return PackedPolicy(model)(make_batch(plan_lanes([packed], 100_000), CPU)).tolist()


_prompts = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40), min_size=1, max_size=6)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=_prompts, n=st.integers(1, 5), temperature=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 99))
def test_logprobs_are_the_learners_own(
    sampler: Sampler, model: PreTrainedModel, prompts: list[list[int]], n: int, temperature: float, seed: int
) -> None:
    """Prompts of any length beside one another, members that end at different times, at the sampling temperature."""
    groups = sample(sampler, model, request(prompts=prompts, n=n, temperature=temperature, seed=seed, stop=["a", "q"]))

    assert [group.prompt_token_ids for group in groups] == prompts
    for group in groups:
        assert len(group.samples) == n
        said = [logprob for completion in group.samples for logprob in completion.logprobs]
        assert said == pytest.approx(learner_logprobs(model, group, temperature or 1.0), abs=1e-4)


def test_padding_and_company_change_nothing(sampler: Sampler, model: PreTrainedModel) -> None:
    """A prompt alone, among longer ones, and in small batches: the same tokens, logprobs to rounding."""
    prompts = [[5, 6, 7], list(range(90)), [250]]
    together = sample(sampler, model, request(prompts=prompts, n=4))
    alone = sample(sampler, model, request(prompts=prompts[:1], n=4))

    for one, other in zip(together[0].samples, alone[0].samples, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_small_batches_give_the_same(sampler: Sampler, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [[at] * (at + 1) for at in range(5)]
    whole = sample(sampler, model, request(prompts=prompts, n=2))
    monkeypatch.setattr("services.trainer.learner.sampling._POSITIONS", 60)
    parts = sample(sampler, model, request(prompts=prompts, n=2))

    assert [s.token_ids for g in whole for s in g.samples] == [s.token_ids for g in parts for s in g.samples]


def test_seed_decides(sampler: Sampler, model: PreTrainedModel) -> None:
    same = [sample(sampler, model, request(n=3, seed=1)) for _ in range(2)]
    other = sample(sampler, model, request(n=3, seed=2))
    free = [sample(sampler, model, request(n=3, seed=None)) for _ in range(2)]

    assert same[0] == same[1]
    assert sample(sampler, model, request(n=1, seed=1))[0].samples[0].token_ids == same[0][0].samples[0].token_ids
    assert same[0] != other
    assert free[0] != free[1]
    assert len({tuple(s.token_ids) for s in same[0][0].samples}) == 3


def test_frequencies_are_the_policys(sampler: Sampler, model: PreTrainedModel) -> None:
    """4,000 first tokens: each common one as often as its logprob says, to five standard errors."""
    count = 4000
    (group,) = sample(sampler, model, request(n=count, max_tokens=1, temperature=0.7))
    seen = Counter(completion.token_ids[0] for completion in group.samples)
    for completion in group.samples:
        p = float(torch.tensor(completion.logprobs[0]).exp())
        if p > 0.01:
            share = seen[completion.token_ids[0]] / count
            assert abs(share - p) < 5 * (p * (1 - p) / count) ** 0.5


def test_greedy_takes_the_most_probable(sampler: Sampler, model: PreTrainedModel) -> None:
    (group,) = sample(sampler, model, request(temperature=0, n=2, max_tokens=6))
    ids = list(group.prompt_token_ids)
    for token in group.samples[0].token_ids:
        with torch.no_grad():
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)

    assert group.samples[0].token_ids == group.samples[1].token_ids


def test_stop_string_ends_a_completion_and_is_not_in_its_text(sampler: Sampler, model: PreTrainedModel) -> None:
    (long,) = sample(sampler, model, request(n=8, max_tokens=30))
    at, donor = max(enumerate(long.samples), key=lambda pair: len(pair[1].text))
    stop = donor.text[4:6]
    (short,) = sample(sampler, model, request(n=8, max_tokens=30, stop=[stop, "never seen"]))

    found = short.samples[at]
    assert (found.finish, found.stop_reason) == ("stop", stop)
    assert found.text == donor.text[: donor.text.find(stop)]
    assert found.token_ids == donor.token_ids[: len(found.token_ids)]
    assert found.text_offsets[0] == 0
    assert found.text_offsets[-1] > len(found.text) - 1  # the last token is of the stop string
    for one, other in zip(short.samples, long.samples, strict=True):
        assert one.stop_reason == stop or one.token_ids == other.token_ids


def test_special_tokens_end_a_completion(sampler: Sampler, model: PreTrainedModel, folder: Path) -> None:
    """End of text and FIM marks alike; the token is sampled and credited, its text is not shown."""
    (group,) = sample(sampler, model, request(n=64, max_tokens=60, temperature=4.0))
    special = set(range(256, VOCAB))
    ended = [completion for completion in group.samples if completion.finish == "stop"]

    assert {completion.token_ids[-1] for completion in ended} >= {256, 257}
    for completion in group.samples:
        assert not special & set(completion.token_ids[:-1])
        assert "<|" not in completion.text
        assert completion.stop_reason is None
        assert len(completion.token_ids) == len(completion.logprobs) == len(completion.text_offsets)
        assert (completion.finish == "length") == (completion.token_ids[-1] not in special)


def test_text_prompts_are_tokenised(sampler: Sampler, model: PreTrainedModel) -> None:
    (group,) = sample(sampler, model, request(prompts=["<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>"]))

    assert len(group.prompt_token_ids) == 6
    assert group.prompt_token_ids[0] >= 256


def test_training_goes_on_as_before(sampler: Sampler, model: PreTrainedModel) -> None:
    """The mode, the attention of training and its use_cache are put back."""
    model.config._attn_implementation = "eager"
    model.config.use_cache = False
    sample(sampler, model, request())

    assert model.training
    assert model.config._attn_implementation == "eager"
    assert model.config.use_cache is False
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"prompts": [[1], []]}, "prompt 1 is empty"),
        ({"prompts": [[VOCAB]]}, "prompt 0 is empty or has token ids"),
        ({"prompts": [[1] * 500], "max_tokens": 20}, "prompt 0 has 500 tokens: with max_tokens=20 that is more than"),
    ],
)
def test_prompts_that_cannot_be_run_are_refused(
    sampler: Sampler, model: PreTrainedModel, given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SamplingRefused, match=sentence):
        sampler.prepare(request(**given), model)


def test_broken_weights_are_said() -> None:
    with pytest.raises(SamplingRefused, match="not finite"):
        draw(torch.tensor([[0.0, float("nan")]]), [0.5], 1.0)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(5, 5)
    tokens, logprobs = draw(logits, [0.0, 0.25, 0.5, 0.75, 1 - 2**-53], 0.5)

    assert tokens == [1, 1, 3, 3, 3]
    assert logprobs == pytest.approx([-0.6931] * 5, abs=1e-4)
