"""`python -m benchmarks.learner.worker ours|trl CASE`: one side of one case; prints a `Measured` as JSON, last line."""

from __future__ import annotations

import os
import sys
import time

import torch

from benchmarks.learner.cases import Case, Measured
from benchmarks.learner.rate import measured_tflops, needed_tflop


def run(side: str, case: Case) -> Measured:
    """One step to get going, then the timed ones."""
    torch.set_num_threads(case.threads)
    trained = _build(side, case)
    first = trained.step()
    seconds, last = [], first
    for _ in range(case.steps):
        _finish(trained.device)
        started = time.perf_counter()
        last = trained.step()
        _finish(trained.device)
        seconds.append(time.perf_counter() - started)
    return Measured(
        device="cpu" if trained.device.type == "cpu" else torch.cuda.get_device_name(),
        seconds=seconds,
        peak_memory_mb=trained.mark.peak_mb(),
        loss=first.loss,
        grad_norm=first.grad_norm,
        logprob=first.logprob,
        logprob_last=last.logprob,
        tflop=needed_tflop(case, *trained.work()),
        matrix_tflops=measured_tflops(trained.device, getattr(torch, case.dtype)),
    )


def _build(side: str, case: Case):  # type: ignore[no-untyped-def]
    """Each side imports its own libraries only."""
    if side == "ours":
        from benchmarks.learner.ours import Ours

        return Ours(case)
    from benchmarks.learner.peer import Peer

    return Peer(case)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    measured = run(sys.argv[1], Case.model_validate_json(sys.argv[2]))
    print(measured.model_dump_json(), flush=True)
    os._exit(0)  # no waiting for what the libraries have started
