"""Our learner's step on a case: packed groups through the engine that trains online, DeepSpeed and all."""

from __future__ import annotations

import torch

from benchmarks.learner.cases import CLIP_HIGH, CLIP_LOW, LEARNING_RATE, Case, Step, build_model, make_groups
from benchmarks.learner.memory import Mark
from services.trainer.learner import attention
from services.trainer.learner.aggregation import MinibatchSize
from services.trainer.learner.batch import make_batch
from services.trainer.learner.engine import Engine, import_deepspeed
from services.trainer.learner.loss import Objective, Tokens
from services.trainer.learner.model import PackedPolicy
from services.trainer.learner.packing import Lane, micro_batches, plan_lanes
from services.trainer.learner.ranks import join_ranks
from services.trainer.learner_api import LearnerConfig, TrainGroup, TrainSample


class Ours:
    """One policy under training. No reference policy, no importance weights: one forward and one backward pass."""

    def __init__(self, case: Case) -> None:
        import_deepspeed()
        ranks = join_ranks()
        self._case, self.device = case, ranks.device
        self._config = LearnerConfig(
            model_path="",
            dtype=case.dtype,
            learning_rate=LEARNING_RATE,
            clip_low=CLIP_LOW,
            clip_high=CLIP_HIGH,
            kl_coef=0.0,
            importance="none",
            aggregation="token_mean",
            max_row_tokens=max(4096, case.prompt + case.group * case.completion),
            gradient_checkpointing=case.checkpointing,
            attention=case.attention,
        )
        model = build_model(case).to(self.device, getattr(torch, case.dtype))
        self.mark = Mark.here(self.device)
        self._kind = attention.choose(case.attention, model, self.device)
        self._engine = Engine(PackedPolicy(model), self._config, self.device)
        self._objective = Objective(self._config)
        self._groups = [
            TrainGroup(
                group_id=str(number),
                prompt_token_ids=group.prompt,
                temperature=1.0,
                samples=[
                    TrainSample(
                        token_ids=tokens,
                        behaviour_logprobs=[0.0] * len(tokens),
                        credited_tokens=len(tokens),
                        advantage=advantage,
                    )
                    for tokens, advantage in zip(group.completions, group.advantages, strict=True)
                ],
            )
            for number, group in enumerate(make_groups(case))
        ]

    def step(self) -> Step:
        """Pack, run forward and backward, let the optimiser step."""
        lanes = plan_lanes(self._groups, self._config.max_row_tokens)
        batches = micro_batches(lanes, self._config.max_row_tokens, self._kind.stacked)
        size = MinibatchSize(sum(lane.credited for lane in lanes), sum(len(lane.sample_lengths) for lane in lanes))
        divisor = self._objective.aggregation.divisor(size)
        done = [self._backward(part, divisor, last=part is batches[-1]) for part in batches]
        norm = self._engine.step()
        assert norm is not None, "the gradient is not finite"
        loss, logprob = (sum(column) for column in zip(*done, strict=True))
        return Step(loss, norm, logprob / size.tokens)

    def _backward(self, lanes: list[Lane], divisor: float, last: bool) -> tuple[float, float]:
        batch = make_batch(lanes, self.device, self._kind)
        logprobs_N = self._engine.logprobs(batch)
        terms = self._objective(Tokens(logprobs_N, batch.behaviour_logprobs_N, batch.advantages_N, batch.sequences))
        loss = self._objective.aggregation.part(terms.loss_N, batch.sequences) / divisor
        self._engine.backward(loss, last)
        return float(loss.detach()), float(logprobs_N.detach().sum())

    def work(self) -> tuple[int, int, int]:
        """Positions, pairs of query and key, and positions with logits."""
        case, own = self._case, self._case.completion - 1
        pairs = case.prompt * (case.prompt + 1) // 2 + case.group * (own * case.prompt + own * (own + 1) // 2)
        positions = case.prompt + case.group * own
        return case.groups * positions, case.groups * pairs, case.samples * case.completion
