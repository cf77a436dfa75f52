"""The account of `make chaos-ingest`: that it would see a loss, a double and a wrong one, if there were any."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks.chaos_ingest.account import EFFECTS, EVENTS, EXPERIENCE, GENERATIONS, HANDED_OVER, OUTCOMES, reckon
from benchmarks.chaos_ingest.load import Promises
from benchmarks.chaos_ingest.rounds import victims_of
from benchmarks.chaos_ingest.victims import KINDS

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def promises() -> Promises:
    made = Promises(generations={"g1", "g2"})
    made.acknowledged("d1", True)
    made.acknowledged("d2", False)
    made.acknowledged("d2", False)
    return made


@pytest.fixture
def rows() -> Rows:
    return {
        GENERATIONS: [("g1",), ("g2",)],
        EVENTS: [("d1", True), ("d2", False)],
        OUTCOMES: [("d1", True, True), ("d2", False, True)],
        EXPERIENCE: [("d1",), ("d2",)],
        HANDED_OVER: [("e1",), ("e2",)],
        EFFECTS: [("e1",), ("e2",)],
    }


def test_all_there_once_is_clean(promises: Promises, rows: Rows) -> None:
    assert reckon(promises, rows).clean


@pytest.mark.parametrize("query", [GENERATIONS, EVENTS, OUTCOMES, EXPERIENCE, EFFECTS])
def test_one_that_is_missing_is_lost(promises: Promises, rows: Rows, query: str) -> None:
    del rows[query][0]
    account = reckon(promises, rows)
    assert account.lost.total() >= 1
    assert not account.clean


@pytest.mark.parametrize("query", [GENERATIONS, EVENTS, OUTCOMES, EXPERIENCE, EFFECTS])
def test_one_that_is_there_twice_is_duplicated(promises: Promises, rows: Rows, query: str) -> None:
    rows[query].append(rows[query][0])
    account = reckon(promises, rows)
    assert account.duplicated.total() >= 1
    assert not account.clean


@pytest.mark.parametrize(
    ("query", "row"), [(OUTCOMES, ("d1", False, True)), (OUTCOMES, ("d2", True, True)), (EFFECTS, ("e3",))]
)
def test_one_that_says_something_else_is_wrong(
    promises: Promises, rows: Rows, query: str, row: tuple[Any, ...]
) -> None:
    rows[query] = [one for one in rows[query] if one[0] != row[0]] + [row]
    assert reckon(promises, rows).wrong.total() == 1


def test_an_outcome_that_stays_open_is_lost(promises: Promises, rows: Rows) -> None:
    rows[OUTCOMES][1] = ("d2", False, False)
    assert reckon(promises, rows).lost["resolved"] == 1


def test_an_account_of_nothing_is_not_clean(rows: Rows) -> None:
    assert not reckon(Promises(), {query: [] for query in rows}).clean


def test_everything_is_killed_in_turn_and_then_at_random() -> None:
    chance = random.Random(1)
    order = [victims_of(number, 20, chance) for number in range(20)]
    assert [names[0] for names in order[:5]] == list(KINDS)
    assert all(len(names) == 1 for names in order[:10])
    assert {name for names in order[10:] for name in names} <= set(KINDS)
