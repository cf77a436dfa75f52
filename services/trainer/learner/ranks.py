"""The process group: one rank started plainly, or N under torchrun. Out: who I am, and four ways to agree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from services.trainer.lifeline import die_with_parent
from shared.kit.errors import SettingsError

_IDLE_LIMIT = timedelta(days=365)
"""Ranks wait for the next request as long as it takes; the default of 30 minutes would end a quiet night's learner."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place in the group. `control` is a gloo group for requests, so that waiting costs no GPU."""

    rank: int
    world: int
    device: torch.device
    control: Any

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which talks to the trainer and writes the files."""
        return self.rank == 0

    def broadcast(self, value: str | None) -> str | None:
        """Rank 0's value, on every rank; blocks until rank 0 has one."""
        box = [value]
        if self.world > 1:
            dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def reduce(self, values: list[float], op: Any = dist.ReduceOp.SUM) -> list[float]:
        """Element-wise sum (or `op`) over the ranks, in double precision."""
        tensor = torch.tensor(values, dtype=torch.float64)
        if self.world > 1:
            dist.all_reduce(tensor, op=op, group=self.control)
        return [float(v) for v in tensor]

    def agree(self, values: list[int]) -> list[int]:
        """Rank 0's values, on every rank that has as many."""
        tensor = torch.tensor(values)
        if self.world > 1:
            dist.broadcast(tensor, src=0, group=self.control)
        return [int(value) for value in tensor]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in their order, on rank 0; empty on the others."""
        if self.world == 1:
            return [value]
        box = [None] * self.world if self.first else None
        dist.gather_object(value, box, dst=0, group=self.control)
        return box or []

    def barrier(self) -> None:
        """Return when every rank has come here."""
        if self.world > 1:
            dist.barrier(group=self.control)


def _take_device(local_rank: int) -> None:
    if local_rank >= torch.cuda.device_count():
        raise SettingsError(
            "TABWISE_LEARNER_RANKS (or the slots in TABWISE_LEARNER_HOSTFILE): each rank needs a GPU, and this "
            f"machine has {torch.cuda.device_count()}"
        )
    torch.cuda.set_device(local_rank)


def join_ranks() -> Ranks:
    """Join torchrun's group, or make a group of one, which needs no port."""
    cuda = torch.cuda.is_available()
    backend = "nccl" if cuda else "gloo"
    os.environ["DS_ACCELERATOR"] = "cuda" if cuda else "cpu"
    local_rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
    if cuda:
        _take_device(local_rank)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()  # torchrun, which may be killed with the trainer
        dist.init_process_group(backend)
    else:
        os.environ.update(RANK="0", WORLD_SIZE="1")
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    world = dist.get_world_size()
    control = dist.new_group(backend="gloo", timeout=_IDLE_LIMIT) if world > 1 else None
    return Ranks(dist.get_rank(), world, torch.device("cuda", local_rank) if cuda else torch.device("cpu"), control)
