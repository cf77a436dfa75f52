from __future__ import annotations

from services.gateway.router import Router


def test_the_least_loaded_comes_first_and_the_failed_last() -> None:
    now = 0.0
    router = Router(["http://a:1", "http://b:1", "http://c:1"], 2.0, clock=lambda: now)
    a, b, c = router.replicas
    a.in_flight, b.in_flight = 2, 1

    assert router.candidates() == [c, b, a]
    router.failed(c)
    assert router.candidates() == [b, a, c]
    now = 2.5
    assert router.candidates() == [c, b, a]


def test_an_answer_makes_a_replica_well_again() -> None:
    router = Router(["http://a:1", "http://b:1"], 60.0)
    a, b = router.replicas
    router.failed(a)
    assert router.candidates()[0] is b

    router.answered(a)

    assert router.candidates()[0] is a


def test_a_single_replica_gets_a_second_chance() -> None:
    router = Router(["http://a:1"], 2.0)

    assert [replica.name for replica in router.candidates()] == ["a:1", "a:1"]
