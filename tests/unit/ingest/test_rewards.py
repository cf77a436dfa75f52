"""The reward: what each piece of evidence is worth, in which direction it may move, and that nothing runs away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from services.ingest.evidence import Evidence
from services.ingest.rewards import NamedReward, RewardWeights, first_problem, length_term, reward_of
from services.ingest.settings import IngestSettings
from shared.contracts.experience import RewardSpec
from shared.kit.errors import SettingsError

DEFAULT = RewardWeights()
SHARE = st.floats(0, 1)
EXACT = 1e-9


@st.composite
def weights(draw: st.DrawFn) -> RewardWeights:
    rejected = draw(st.floats(-2, 1))
    accepted = rejected + draw(st.floats(0.01, 3))
    amounts = ("dismissed", "retention_30s", "retention_2m", "retention_10m", "reversed", "edited", "rating")
    return RewardWeights(
        accepted=accepted,
        rejected=rejected,
        silence=draw(st.floats(-1, 1)),
        partial=draw(SHARE),
        typed_out=draw(SHARE),
        length=draw(st.floats(0, 0.99)) * (accepted - rejected),
        length_half_chars=draw(st.floats(1, 500)),
        **{name: draw(st.floats(0, 2)) for name in amounts},
    )


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    maybe = st.none() | st.booleans()
    return Evidence(
        verdict=draw(st.sampled_from(["shown", "rejected", "accepted"])),
        part=draw(st.sampled_from([None, "line", "word"])),
        explicit=draw(maybe),
        shown_chars=draw(st.none() | st.integers(0, 100_000)),
        retention=draw(st.dictionaries(st.sampled_from([30, 120, 600, 5]), SHARE)),
        reversed_=draw(maybe),
        typed_out=draw(maybe),
        settled=draw(maybe),
        edited=draw(st.none() | SHARE),
        rating=draw(st.none() | st.floats(-1, 1)),
        superseded=draw(maybe),
    )


def value(known: Evidence, by: RewardWeights = DEFAULT) -> float:
    reward = reward_of(known, by)
    assert reward is not None
    return reward.value


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Evidence("accepted", shown_chars=9), 0.75),
        (Evidence("accepted", "line", shown_chars=9), 0.75),
        (Evidence("rejected", shown_chars=9), -0.25),
        (Evidence("rejected", explicit=False, shown_chars=9), -0.25),
        (Evidence("rejected", explicit=True, shown_chars=9), -0.5),
        (Evidence("rejected", shown_chars=0), 0.0),
        (Evidence("accepted", shown_chars=9, retention={30: 0.0, 600: 0.0}, reversed_=True), 0.75),
        (Evidence("rejected", shown_chars=9, typed_out=True), -0.25),
        (Evidence("accepted", shown_chars=9, rating=-1.0), 0.5),
        (Evidence("accepted", shown_chars=9, edited=0.5), 0.5),
        (Evidence("rejected", shown_chars=9, edited=0.5), 0.0),
        (Evidence("shown", shown_chars=9, rating=1.0), 0.25),
    ],
)
def test_the_defaults(known: Evidence, expected: float) -> None:
    assert value(known) == pytest.approx(expected)


def test_each_term_by_its_name() -> None:
    by = RewardWeights(
        partial=0.5, typed_out=0.5, retention_30s=0.1, retention_2m=0.2, retention_10m=0.4, reversed=0.3, length=0.1
    )
    known = Evidence("accepted", "word", shown_chars=40, retention={30: 1.0, 120: 0.5, 600: 0.0}, reversed_=True)
    reward = reward_of(known, by)
    assert reward is not None
    assert reward.terms == pytest.approx(
        {"partial": 0.25, "retention_2m": -0.1, "retention_10m": -0.4, "reversed": -0.3, "length": 0.05}
    )
    typed = reward_of(Evidence("rejected", explicit=True, typed_out=True, shown_chars=40), by)
    assert typed is not None
    assert typed.terms == pytest.approx({"rejected": -0.25, "dismissed": -0.25, "typed_out": 0.625, "length": -0.05})


def test_a_display_without_a_word_about_it_has_no_reward() -> None:
    assert reward_of(Evidence("shown", shown_chars=9), DEFAULT) is None
    assert reward_of(Evidence("shown", shown_chars=9, superseded=True, settled=True), DEFAULT) is None
    assert value(Evidence("shown", shown_chars=9, typed_out=True), RewardWeights(typed_out=1.0)) == 0.75


@given(evidence(), weights())
def test_silence_is_worth_silence_whatever_else_is_known(known: Evidence, by: RewardWeights) -> None:
    assert value(replace(known, shown_chars=0), by) == by.silence
    assert value(replace(known, shown_chars=0)) == 0.0


@given(evidence(), weights())
def test_no_reward_is_beyond_the_bound(known: Evidence, by: RewardWeights) -> None:
    reward = reward_of(known, by)
    assert reward is None or abs(reward.value) <= by.bound + EXACT


@given(evidence(), weights(), st.sampled_from([30, 120, 600]), SHARE, SHARE)
def test_more_that_is_left_is_never_worth_less(
    known: Evidence, by: RewardWeights, after_s: int, one: float, other: float
) -> None:
    less, more = sorted((one, other))
    known = replace(known, verdict="accepted")
    worse, better = (value(replace(known, retention={**known.retention, after_s: share}), by) for share in (less, more))
    assert worse <= better + EXACT


@given(evidence(), weights())
def test_removing_an_accept_never_pays(known: Evidence, by: RewardWeights) -> None:
    known = replace(known, verdict="accepted")
    assert value(replace(known, reversed_=True), by) <= value(replace(known, reversed_=False), by) + EXACT


@given(evidence(), weights())
def test_a_dismissal_is_never_worth_more_than_a_timer_and_typing_it_out_never_less(
    known: Evidence, by: RewardWeights
) -> None:
    known = replace(known, verdict="rejected")
    assert value(replace(known, explicit=True), by) <= value(replace(known, explicit=False), by) + EXACT
    assert value(replace(known, typed_out=True), by) >= value(replace(known, typed_out=False), by) - EXACT


@given(evidence(), weights(), st.sampled_from([("edited", 0.0), ("rating", -1.0)]), SHARE, SHARE)
def test_a_better_word_is_never_worth_less(
    known: Evidence, by: RewardWeights, said: tuple[str, float], one: float, other: float
) -> None:
    name, lowest = said
    less, more = (lowest + (1.0 - lowest) * share for share in sorted((one, other)))
    known = replace(known, verdict="accepted" if known.verdict == "shown" else known.verdict)
    worse, better = (value(replace(known, **{name: level}), by) for level in (less, more))  # type: ignore[arg-type]
    assert worse <= better + EXACT


@given(weights(), st.integers(1, 10**7), st.integers(1, 10**7))
def test_no_length_beats_a_verdict(by: RewardWeights, one: int, other: int) -> None:
    accepted, rejected = Evidence("accepted", shown_chars=one), Evidence("rejected", shown_chars=other)
    assert value(accepted, by) > value(rejected, by)
    partial = Evidence("accepted", "line", shown_chars=one)
    assert value(rejected, by) - EXACT <= value(partial, by) <= value(accepted, by) + EXACT
    assert value(replace(rejected, explicit=True), by) <= value(rejected, by)


@given(weights(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_length_term_grows_and_never_reaches_its_weight(by: RewardWeights, one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert 0 <= length_term(short, by) <= length_term(long, by) <= by.length
    assert length_term(round(by.length_half_chars), by) == pytest.approx(by.length / 2, rel=0.5)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"accepted": -1.0}, "accepted: must be greater than rejected"),
        ({"length": 1.0}, "length: must be less than accepted minus rejected, so that no length beats a verdict"),
        ({"dismissed": -0.1}, "dismissed: Input should be greater than or equal to 0"),
        ({"partial": 1.5}, "partial: Input should be less than or equal to 1"),
        ({"rating": math.nan}, "rating: Input should be a finite number"),
        ({"acepted": 1.0}, "acepted: is no reward term"),
    ],
)
def test_impossible_weights_are_refused_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RewardWeights(**wrong)
    assert first_problem(caught.value).startswith(sentence)


def test_the_digest_is_that_of_the_numbers() -> None:
    assert RewardWeights(accepted=1, rejected=0).digest == RewardWeights(rejected=0.0, accepted=1.0).digest
    assert RewardWeights(accepted=1).digest != DEFAULT.digest
    assert NamedReward.of("x", DEFAULT).digest == DEFAULT.digest


def test_settings_and_weights_are_the_same_fields_with_the_same_defaults() -> None:
    settings = IngestSettings()
    assert settings.rewards.general == NamedReward.of("default", DEFAULT)
    assert settings.reward_spec == RewardSpec()


def test_a_project_may_have_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABWISE_REWARD_REJECTED", "-0.5")
    monkeypatch.setenv("TABWISE_PROJECT_REWARDS", '{"team-a": {"accepted": 1.0}}')
    rewards = IngestSettings().rewards
    assert rewards.of("team-a") == NamedReward.of("default/team-a", RewardWeights(accepted=1.0, rejected=-0.5))
    assert rewards.of("team-b") == rewards.general == NamedReward.of("default", RewardWeights(rejected=-0.5))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("PROJECT_REWARDS", "nope", 'TABWISE_PROJECT_REWARDS: .*must be JSON like {"team-a": {"accepted": 1.0}}'),
        ("PROJECT_REWARDS", '["team-a"]', "TABWISE_PROJECT_REWARDS: .*must be JSON like"),
        ("PROJECT_REWARDS", '{"a": {"acepted": 1}}', "TABWISE_PROJECT_REWARDS: a: acepted: is no reward term$"),
        ("PROJECT_REWARDS", '{"a": {"length": "x"}}', "TABWISE_PROJECT_REWARDS: a: length: .*valid number"),
        ("PROJECT_REWARDS", '{"a": {"length": 9}}', "TABWISE_PROJECT_REWARDS: a: length: must be less than accepted"),
        ("REWARD_LENGTH", "9", "^TABWISE_REWARD_LENGTH: must be less than accepted"),
        ("REWARD_DISMISSED", "-1", "^TABWISE_REWARD_DISMISSED: Input should be greater"),
        ("REWARD_ACCEPTED", "nan", "^TABWISE_REWARD_ACCEPTED: .*finite"),
        ("REWARD_ACCEPTED", "much", "^TABWISE_REWARD_ACCEPTED: .*valid number"),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, sentence: str
) -> None:
    monkeypatch.setenv(f"TABWISE_{name}", text)
    with pytest.raises(SettingsError, match=sentence):
        IngestSettings.load()
