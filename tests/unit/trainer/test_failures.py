"""After rounds that the learner could not train."""

from __future__ import annotations

from services.trainer.failures import Failures


def test_pauses_double_and_rounds_halve() -> None:
    failures = Failures(pause_s=1.0, max_pause_s=5.0, give_up_after=6)
    assert failures.limit(32) == 32
    now, pauses = 0.0, []
    for _ in range(6):
        failures.failed(now)
        pause = 0.0
        while failures.pausing(now + pause):
            pause += 0.5
        pauses.append(pause)
        now += pause
    assert pauses == [2, 4, 5, 5, 5, 5]
    assert failures.limit(32) == 1
    assert failures.hopeless


def test_success_clears() -> None:
    failures = Failures(pause_s=1.0, max_pause_s=60.0, give_up_after=1)
    failures.failed(0.0)
    failures.cleared()
    assert (failures.in_row, failures.limit(8), failures.pausing(0.0), failures.hopeless) == (0, 8, False, False)
