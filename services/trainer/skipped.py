"""Why a mini-batch was not trained, in a sentence that says what to look at. Pure; never holds code."""

from __future__ import annotations

from services.trainer.learner_api import LOGPROB_GAP, StepDone


def why(step: StepDone, max_logprob_gap: float) -> str:
    """Of a skipped step."""
    if step.skipped == LOGPROB_GAP:
        return (
            f"engine and learner differ by {step.logprob_gap_mean:.3g} nats a token (at most "
            f"{step.logprob_gap_max:.3g}), more than TABWISE_MAX_LOGPROB_GAP={max_logprob_gap:g}: check that the "
            "engine serves the version that it states, with --logprobs-mode processed_logprobs; what was put aside is "
            "counted as logprob_gap"
        )
    return (
        "its loss or gradient was not finite; its experience is tried again in smaller mini-batches, and what is not "
        "finite alone goes to the dead letters"
    )
