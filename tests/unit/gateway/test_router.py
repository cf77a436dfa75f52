from __future__ import annotations

from collections import Counter

import pytest

from services.gateway.router import Health, Replica, Router, make_replicas

URLS = ["http://a:1", "http://b:1", "http://c:1"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_router(urls: list[str] = URLS, *, slack: int | None = None, clock: Clock | None = None) -> Router:
    return Router(make_replicas(urls), Health(2, 1.0, 8.0), affinity_slack=slack, clock=clock or Clock())


def eject(router: Router, replica: Replica, kind: str = "status") -> None:
    while not router.ejected(replica):
        router.failed(replica, kind)


def test_the_least_loaded_comes_first() -> None:
    router = a_router()
    a, b, c = router.replicas
    a.in_flight, b.in_flight = 2, 1

    assert router.candidates("x") == [c, b, a]


def test_the_equally_loaded_take_turns() -> None:
    router = a_router()

    assert Counter(router.candidates("x")[0].url for _ in range(9)) == dict.fromkeys(URLS, 3)


def test_healthy_before_draining_before_ejected() -> None:
    router = a_router(slack=4)
    a, b, c = router.replicas
    router.drain(a.url, 10)
    eject(router, b)
    c.in_flight = 100

    for affinity in "abcdef":
        assert router.candidates(affinity) == [c, a, b]


def test_one_failure_is_forgiven_two_in_a_row_are_not() -> None:
    router = a_router()
    a, *_ = router.replicas

    assert not router.failed(a, "reset")
    router.answered(a)
    assert not router.failed(a, "reset")
    assert not router.ejected(a)
    assert router.failed(a, "reset")
    assert router.ejected(a)
    assert not router.failed(a, "reset"), "ejected already"


def test_the_time_out_grows_and_is_bounded_and_a_success_forgives() -> None:
    clock = Clock()
    router = a_router(clock=clock)
    a, *_ = router.replicas
    router.failed(a, "status")
    lengths = []
    for _ in range(6):
        router.failed(a, "status")
        lengths.append(a.ejected_until_s - clock.now)
        clock.now = a.ejected_until_s

    assert lengths == [1, 2, 4, 8, 8, 8]
    assert not router.ejected(a)
    router.answered(a)
    assert not router.failed(a, "status")


def test_a_health_that_never_ends_has_no_overflow() -> None:
    assert Health(1, 1.0, 30.0).ejected_s(100_000) == 30.0


def test_a_probe_takes_a_dead_replica_out_and_lets_it_back_early() -> None:
    router = a_router()
    a, *_ = router.replicas

    assert router.probed(a, well=False)
    assert not router.probed(a, well=False)
    assert router.candidates("x")[-1] is a
    router.probed(a, well=True)
    assert not router.ejected(a)
    assert not router.failed(a, "reset"), "a new process begins anew"


@pytest.mark.parametrize(("kind", "back"), [("connect", True), ("status", False), ("try_timeout", False)])
def test_a_good_probe_frees_only_who_could_not_be_reached(kind: str, back: bool) -> None:
    router = a_router()
    a, *_ = router.replicas
    eject(router, a, kind)

    router.probed(a, well=True)

    assert router.ejected(a) is not back


def test_one_that_failed_and_then_died_is_let_back_when_it_is_restarted() -> None:
    router = a_router()
    a, *_ = router.replicas
    eject(router, a, "reset")
    router.probed(a, well=False)

    router.probed(a, well=True)

    assert not router.ejected(a)


def test_draining_ends_by_word_by_time_and_with_redis() -> None:
    clock = Clock()
    router = a_router(clock=clock)
    a, *_ = router.replicas

    def time_passes() -> None:
        clock.now += 10

    def it_serves() -> None:
        router.drain(a.url, 0)

    for end in (it_serves, router.nothing_drains, time_passes):
        router.drain(a.url, 10)
        assert router.draining(a)
        assert router.candidates("x")[-1] is a
        end()
        assert not router.draining(a)
    router.drain("http://elsewhere:1", 10)


def test_a_single_replica_is_asked_whatever_its_state() -> None:
    router = a_router(["http://a:1"], slack=4)
    (a,) = router.replicas
    eject(router, a)
    router.drain(a.url, 10)

    assert router.candidates("x") == [a]


def test_a_repeated_url_is_one_replica() -> None:
    assert [replica.name for replica in make_replicas(["http://a:1", "http://a:1"])] == ["a:1"]


def test_affinity_is_stable_even_and_the_same_in_every_gateway() -> None:
    one, other = a_router(slack=4), a_router(list(reversed(URLS)), slack=4)
    homes = [one.candidates(f"project\nfile{index}.py")[0].url for index in range(3000)]

    assert homes == [other.candidates(f"project\nfile{index}.py")[0].url for index in range(3000)]
    assert all(850 < count < 1150 for count in Counter(homes).values())


def test_without_a_replica_only_its_own_files_move() -> None:
    router = a_router(slack=4)
    gone = router.replicas[1]
    files = [f"file{index}" for index in range(300)]
    before = {name: router.candidates(name)[0] for name in files}
    eject(router, gone)

    for name, home in before.items():
        now = router.candidates(name)[0]
        assert now is home if home is not gone else now is not gone


def test_affinity_gives_way_to_load_beyond_the_slack() -> None:
    router = a_router(slack=4)
    home = router.candidates("file")[0]

    home.in_flight = 4
    assert router.candidates("file")[0] is home
    home.in_flight = 5
    assert router.candidates("file")[0] is not home
    assert set(router.candidates("file")) == set(router.replicas)


def test_a_lone_surrogate_has_a_home_too() -> None:
    assert len(a_router(slack=4).candidates("\ud800")) == 3
