"""One request from start to end: the right base in memory, one optimiser step per mini-batch, one checkpoint.

In: `TrainRequest`. Out: `StepDone` for each mini-batch through `emit`, then `RoundDone`; or an exception, after which
the memory counts as unknown and the next request loads its base anew. A `SampleRequest` gives `Sampled`.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
import torch
from torch import Tensor

from services.trainer.learner import attention, checkpoint
from services.trainer.learner.aggregation import MinibatchSize
from services.trainer.learner.batch import Batch, make_batch
from services.trainer.learner.engine import Engine
from services.trainer.learner.figures import NOTHING, Tally
from services.trainer.learner.loss import Objective, TokenLoss, Tokens
from services.trainer.learner.model import PackedPolicy, base_folder, load_model
from services.trainer.learner.packing import Lane, micro_batches, plan_lanes, share_out
from services.trainer.learner.probe import probe_lane, probe_tokens
from services.trainer.learner.ranks import Ranks
from services.trainer.learner.reference import AdapterOff, FrozenCopy, Reference
from services.trainer.learner.sampling import Sampler
from services.trainer.learner.tracking.run import Tracking
from services.trainer.learner_api import (
    LOGPROB_GAP,
    NON_FINITE,
    CheckpointRef,
    LearnerConfig,
    LearnerReady,
    RoundDone,
    Sampled,
    SampleRequest,
    Skipped,
    StepDone,
    TrainGroup,
    TrainRequest,
)
from shared.contracts.checkpoint import Probe
from shared.kit.errors import SettingsError

log = structlog.get_logger()

Emit = Callable[[StepDone], None]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_BASE = (0, "base")


@dataclass(frozen=True, slots=True)
class Work:
    """This rank's part of a mini-batch: as many micro-batches as every other rank has."""

    batches: list[list[Lane]]
    real: int
    """Micro-batches from here on are stand-ins, run with weight zero so that the ranks stay in step."""
    size: MinibatchSize
    groups: int


class Learner:
    """Model, optimiser and reference in memory, and which checkpoint they are."""

    def __init__(self, config: LearnerConfig, ranks: Ranks) -> None:
        torch.manual_seed(config.seed)
        self._config, self._ranks = config, ranks
        self._folder = base_folder(config.model_path)
        self._probe_tokens = probe_tokens(self._folder)
        self._objective = Objective(config)
        self._reference = self._load_reference() if config.kl_coef > 0 else None
        self._engine = self._build()
        self._attention = attention.choose(config.attention, self._engine.policy.model, ranks.device)
        self._memory: tuple[int, str] | None = _BASE
        self._tracking = Tracking(config, first=ranks.first)
        self._sampler = Sampler(self._folder, ranks.device)

    def ready(self) -> LearnerReady:
        """What was loaded."""
        parameters = sum(getattr(p, "ds_numel", p.numel()) for p in self._engine.policy.parameters())
        return LearnerReady(ranks=self._ranks.world, parameters=parameters, device=self._ranks.device.type)

    def verify(self, base: CheckpointRef) -> None:
        """Raise where `base` is neither in memory nor loadable. Rank 0 asks before the others hear of the request."""
        if self._memory != (base.version, base.lineage):
            checkpoint.verify(base, self._config, self._ranks.world)

    def train(self, request: TrainRequest, emit: Emit) -> RoundDone:
        """Train and write the checkpoint (collective)."""
        started = time.monotonic()
        self._recall(request.base)
        self._memory = None
        work = [self._share(groups) for groups in request.minibatches]
        proximal = [None, *(self._proximal(part) for part in work[1:])]
        steps = []
        for index, part in enumerate(work):
            steps.append(self._step(index, part, proximal[index]))
            emit(steps[-1])
        self._save(request)
        self._memory = (request.target.version, request.target.lineage)
        done = RoundDone(
            target=request.target,
            seconds=time.monotonic() - started,
            peak_rss_mb=self._peak_rss_mb(),
            tracking_lost=self._tracking.take_lost(),
        )
        self._tracking.round(done, steps, request.scalars)
        return done

    def close(self) -> None:
        """Let trackers hand over what they hold; a few seconds at most."""
        self._tracking.close()

    def prepare(self, request: SampleRequest) -> SampleRequest:
        """Prompts as token ids, and a seed. Rank 0 asks before the others hear of it; raises `SamplingRefused`."""
        return self._sampler.prepare(request, self._engine.policy.model)

    def sample(self, request: SampleRequest) -> Sampled:
        """Draw completions, each rank of its share of the prompts (collective). Whole on rank 0.

        With ZeRO 3 every forward pass is a collective: all ranks run all prompts, with the tokens that rank 0 drew.
        """
        started = time.monotonic()
        self._recall(request.base)
        model, count = self._engine.policy.model, len(request.prompts)
        if self._config.zero_stage == 3:
            groups = self._sampler.sample(model, request, range(count), self._ranks.agree)
            return Sampled(groups=groups, seconds=time.monotonic() - started)
        world = self._ranks.world
        own = self._sampler.sample(model, request, range(self._ranks.rank, count, world))
        shares = [iter(share) for share in self._ranks.gather(own)]
        groups = [next(shares[index % world]) for index in range(count)] if shares else []
        return Sampled(groups=groups, seconds=time.monotonic() - started)

    # What is in memory

    def _build(self) -> Engine:
        return Engine(self._policy(self._folder), self._config, self._ranks.device)

    def _policy(self, folder: Path) -> PackedPolicy:
        return PackedPolicy(load_model(folder, _DTYPES[self._config.dtype]))

    def _load_reference(self) -> Reference:
        path = self._config.reference_path
        if path is None and self._config.adapter == "lora":
            return AdapterOff(lambda batch: self._engine.base_logprobs(batch))
        try:
            return FrozenCopy(self._policy(base_folder(path) if path else self._folder), self._ranks.device)
        except SettingsError as error:
            raise SettingsError(str(error).replace("MODEL_PATH", "REFERENCE_PATH") if path else str(error)) from error

    def _recall(self, base: CheckpointRef) -> None:
        """Bring `base` into memory, unless it is there. A used engine is rebuilt: its gradients are unknown."""
        wanted = (base.version, base.lineage)
        if self._memory == wanted:
            return
        log.info("loading checkpoint", version=base.version, lineage=base.lineage)
        if self._memory != _BASE:
            self._engine.close()
            self._engine = self._build()
        self._memory = None
        if base.version > 0:
            checkpoint.load(self._engine, base)
        self._memory = wanted

    # One mini-batch

    def _share(self, groups: Sequence[TrainGroup]) -> Work:
        """The same plan on every rank, of which this rank takes its share."""
        lanes = plan_lanes(groups, self._config.max_row_tokens)
        if not lanes:
            raise ValueError("a mini-batch without groups")
        budget, stacked = self._config.max_row_tokens, self._attention.stacked
        shares = [micro_batches(part, budget, stacked) for part in share_out(lanes, self._ranks.world)]
        own = shares[self._ranks.rank]
        spare = [[min(lanes, key=lambda lane: lane.length)]] * (max(map(len, shares)) - len(own))
        size = MinibatchSize(sum(lane.credited for lane in lanes), sum(len(lane.sample_lengths) for lane in lanes))
        return Work(own + spare, len(own), size, len(groups))

    def _batch(self, lanes: Sequence[Lane]) -> Batch:
        return make_batch(lanes, self._ranks.device, self._attention)

    @torch.no_grad()
    def _proximal(self, work: Work) -> list[Tensor]:
        """The policy's logprobs as the round begins, for the mini-batches that earlier steps will precede."""
        return [self._engine.logprobs(self._batch(lanes)) for lanes in work.batches]

    def _step(self, index: int, work: Work, proximal: list[Tensor] | None) -> StepDone:
        started, rate = time.monotonic(), self._engine.learning_rate
        aggregation = self._objective.aggregation
        tally = Tally()
        skipped: Skipped | None = None
        scale = self._ranks.world / aggregation.divisor(work.size)
        for at, lanes in enumerate(work.batches):
            batch, last = self._batch(lanes), at == len(work.batches) - 1
            terms = self._token_loss(batch, None if proximal is None else proximal[at])
            part = aggregation.part(terms.loss_N, batch.sequences)
            if at < work.real:
                tally.add(terms, part, batch.off_policy_N)
            loss = part * (scale if at < work.real else 0.0)
            if not torch.isfinite(loss):
                skipped = NON_FINITE
            if last and tally.gap_mean(self._ranks) > self._config.max_logprob_gap:
                skipped = skipped or LOGPROB_GAP
            if skipped:
                loss = loss * torch.nan  # so that every ZeRO stage sees it in the gradient, and skips
            self._engine.backward(loss, last=last)
        norm = self._engine.step()
        if norm is None:
            skipped = skipped or NON_FINITE
        done = self._report(index, work, tally, norm, skipped, time.monotonic() - started)
        self._tracking.step(done, self._engine.steps, rate)
        return done

    def _token_loss(self, batch: Batch, proximal_N: Tensor | None) -> TokenLoss:
        reference_N = None if self._reference is None else self._reference.logprobs(batch)
        return self._objective(
            Tokens(
                logprobs_N=self._engine.logprobs(batch),
                behaviour_N=batch.behaviour_logprobs_N,
                advantages_N=batch.advantages_N,
                sequences=batch.sequences,
                proximal_N=proximal_N,
                reference_N=reference_N,
                off_policy_N=batch.off_policy_N,
            )
        )

    def _report(
        self, index: int, work: Work, tally: Tally, norm: float | None, skipped: Skipped | None, seconds: float
    ) -> StepDone:
        """Of the mini-batch, on all ranks. A step that was not finite has no figures."""
        figures = tally.figures(work.size.tokens, self._objective.aggregation.divisor(work.size), self._ranks)
        return StepDone(
            minibatch=index,
            groups=work.groups,
            tokens=work.size.tokens,
            grad_norm=norm or 0.0,
            seconds=seconds,
            skipped=skipped,
            **asdict(NOTHING if skipped == NON_FINITE else figures),
        )

    # The checkpoint

    def _save(self, request: TrainRequest) -> None:
        target, base = request.target, request.base
        lineage = checkpoint.lineage_of(target, base, self._config, self._ranks.world)
        checkpoint.save(self._engine, self._folder, target, lineage, self._prober(target.version), self._ranks)

    def _prober(self, version: int) -> Callable[[Path], Probe]:
        """How the probe's logprobs are found out: in memory, or with an adapter from the merged weights on disk, which
        nobody holds in memory (and which bfloat16 rounds otherwise than the sum of two layers)."""
        if self._config.adapter == "lora":
            return lambda folder: self._probe(version, FrozenCopy(self._policy(folder), self._ranks.device).logprobs)
        probe = self._probe(version, self._engine.logprobs)
        return lambda folder: probe

    @torch.no_grad()
    def _probe(self, version: int, logprobs: Callable[[Batch], Tensor]) -> Probe:
        """The forward pass in the weights' dtype, the softmax in fp32."""
        batch = make_batch([probe_lane(self._probe_tokens)], self._ranks.device)
        return Probe(version=version, token_ids=self._probe_tokens, logprobs=logprobs(batch).tolist())

    def _peak_rss_mb(self) -> float:
        """Of all ranks together."""
        return self._ranks.reduce([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024])[0]
