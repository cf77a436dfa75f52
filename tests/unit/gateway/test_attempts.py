"""No completion is lost that any healthy replica could have served: on random outcomes, without a network."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.attempts import Attempts
from services.gateway.router import Router, make_replicas

Outcome = Literal["ok", "slow", "hang", "fail", "busy"]
DEADLINE_S, TRY_S, SLOW_S = 30.0, 3.0, 8.0


def run(outcomes: list[Outcome]) -> tuple[bool, float, Counter[str], Attempts]:
    """Each replica does the same at each try. Whether it was served, when, and who was asked how often."""
    router = Router(make_replicas([f"http://{index}:1" for index in range(len(outcomes))]), affinity_slack=None)
    attempts = Attempts(router.replicas, DEADLINE_S, TRY_S)
    now, asked = 0.0, Counter[str]()
    while (tried := attempts.next(now)) is not None:
        asked[tried.replica.name] += 1
        outcome = outcomes[int(tried.replica.url[7])]
        first_token_s = {"ok": 0.1, "slow": SLOW_S, "hang": 1e9}.get(outcome)
        if first_token_s is None:
            attempts.is_busy() if outcome == "busy" else attempts.has_failed()
        elif first_token_s <= tried.limit_s:
            return True, now + first_token_s, asked, attempts
        else:
            now += tried.limit_s
            attempts.too_slow(tried)
    return False, now, asked, attempts


@given(st.lists(st.sampled_from(["ok", "slow", "fail", "busy", "hang"]), min_size=1, max_size=3))
def test_whoever_can_serve_does(outcomes: list[Outcome]) -> None:
    served, at_s, asked, attempts = run(outcomes)

    assert served or "ok" not in outcomes
    assert at_s <= DEADLINE_S
    assert all(count <= 2 for count in asked.values())
    assert all(count == 1 or outcomes[int(name[0])] in ("slow", "hang") for name, count in asked.items())
    assert attempts.all_busy == (not served and set(outcomes) == {"busy"}) or served


@given(st.lists(st.sampled_from(["fail", "busy", "slow"]), min_size=1, max_size=3))
def test_a_slow_one_serves_where_nobody_else_does(outcomes: list[Outcome]) -> None:
    served, *_ = run(outcomes)

    assert served == ("slow" in outcomes)


def test_the_last_one_gets_all_the_time() -> None:
    assert run(["slow"])[1] == SLOW_S
    assert run(["hang"])[1] == DEADLINE_S


def test_after_the_deadline_nobody_is_asked() -> None:
    router = Router(make_replicas(["http://0:1"]))

    assert Attempts(router.replicas, DEADLINE_S, TRY_S).next(DEADLINE_S) is None
