"""The experience of a display, its reward, and why it is withheld."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from services.ingest.evidence import Evidence
from services.ingest.grouping import Display, resolve
from services.ingest.languages import language_of
from services.ingest.rewards import RewardWeights
from shared.contracts.experience import Experience, Reference
from tests.factories import make_generation, pieces

SPEC = RewardWeights()


def display(shown: str = "a + b", label: str = "accepted", **changes: Any) -> Display:
    values: dict[str, Any] = {
        "outcome_id": "out1",
        "project_id": "p",
        "label": label,
        "shown_text": shown,
        "credited_tokens": 3,
        "first_event_at": datetime(2026, 11, 20, tzinfo=UTC),
        "filepath": "file:///w/main.py",
        "settled": None,
        "already_labelled": False,
    }
    return Display(**(values | changes))


def test_an_accept() -> None:
    generation = make_generation("a + b", policy_version=7)
    resolution = resolve(display(), generation, [], SPEC)
    experience = resolution.experience
    assert resolution.withheld is None
    assert (experience.label, experience.reward) == ("accepted", 0.75)
    assert experience.reference == Reference(kind="accepted", text="a + b")
    assert experience.shown.token_ids == generation.token_ids
    assert experience.shown.logprobs == generation.logprobs
    assert (experience.shown.credited_tokens, experience.shown.policy_version) == (3, 7)
    assert (experience.language, experience.project_id) == ("python", "p")
    assert Experience.model_validate_json(experience.model_dump_json()) == experience


def test_a_reject_knows_only_what_was_typed_instead() -> None:
    unknown = resolve(display(label="rejected"), make_generation(), [], SPEC).experience
    assert (unknown.reward, unknown.reference) == (-0.25, None)
    known = resolve(display(label="rejected", settled="a - b"), make_generation(), [], SPEC).experience
    assert known.reference == Reference(kind="settled", text="a - b")


def test_siblings_of_the_request_come_along_unless_they_are_untrainable() -> None:
    good = make_generation("a", choice_index=1, request_id="cmpl-1")
    bad = make_generation("b", choice_index=2, request_id="cmpl-1", untrainable="bad_logprobs")
    siblings = resolve(display(), make_generation(), [good, bad], SPEC).experience.siblings
    assert [sibling.text for sibling in siblings] == ["a"]
    assert siblings[0].credited_tokens == len(good.token_ids)


@pytest.mark.parametrize(
    ("shown", "sibling", "ends_by", "credited"),
    [
        ("a + b", "x = y\nz = 1", "end", ["x", " ", "=", " y"]),
        ("a + b", "x = y\r\nz", "end", ["x", " ", "=", " y"]),
        ("a + b", "x", "end", ["x", "END"]),
        ("a + b", "x\n", "end", ["x", "\n", "END"]),
        ("a + b", "x", "length", ["x"]),
        ("a + b", "x", "/src/", ["x"]),
        ("a + b", "\nx", "end", []),
        ("a + b", "", "end", ["END"]),
        ("a\n  b", "x\ny", "end", ["x", "\ny", "END"]),
    ],
)
def test_of_a_natural_sibling_only_what_is_comparable_with_the_shown_text_is_credited(
    shown: str, sibling: str, ends_by: str, credited: list[str]
) -> None:
    end: dict[str, Any] = {
        "end": {}, "length": {"finish_reason": "length"}, "/src/": {"stop_reason": "/src/"}
    }[ends_by]  # fmt: skip
    other = make_generation(sibling, choice_index=1, **end)
    (sample,) = resolve(display(shown), make_generation(shown), [other], SPEC).experience.siblings
    named = [*pieces(sibling), "END"]
    assert named[: sample.credited_tokens] == credited
    assert sample.token_ids == other.token_ids


def test_what_was_typed_ahead_decides_how_many_lines_were_shown() -> None:
    other = make_generation("x\ny", choice_index=1)
    experience = resolve(display("b"), make_generation("a + b"), [other], SPEC).experience
    assert experience.siblings[0].credited_tokens == 1


@pytest.mark.parametrize(
    ("shown", "generation", "reason"),
    [
        (display(), make_generation(untrainable="bad_logprobs"), "bad_logprobs"),
        (display(already_labelled=True), make_generation(), "already_labelled"),
        (display(credited_tokens=0), make_generation(), "nothing_credited"),
        (display(label="rejected", settled="a + b"), make_generation(), "typed_out"),
        (display("+ b", label="rejected"), make_generation("a + b"), "typed_ahead"),
        (display("+ b"), make_generation("a + b"), None),
    ],
)
def test_what_is_withheld(shown: Display, generation: Any, reason: str | None) -> None:
    assert resolve(shown, generation, [], SPEC).withheld == reason


def test_text_typed_ahead_belongs_to_what_was_accepted() -> None:
    experience = resolve(display("+ b"), make_generation("a + b\n\nc"), [], SPEC).experience
    assert experience.shown_text == "a + b"
    assert experience.reference == Reference(kind="accepted", text="a + b")


def test_rewards_are_settings() -> None:
    weights = RewardWeights(accepted=1.0, rejected=-1.0, silence=0.1, sibling_weight=0.5)
    accepted = resolve(display(), make_generation(), [], weights).experience
    assert (accepted.reward, accepted.reward_spec) == (1.0, weights.spec)
    assert resolve(display(label="rejected"), make_generation(), [], weights).experience.reward == -1.0
    assert resolve(display(" ", label="rejected"), make_generation(" "), [], weights).experience.reward == 0.1


def test_all_evidence_counts_where_more_is_known() -> None:
    dismissed = Evidence("rejected", explicit=True, shown_chars=5)
    shown = display(label="rejected", evidence=dismissed)
    assert resolve(shown, make_generation(), [], SPEC).experience.reward == -0.5


def test_what_was_typed_out_is_handed_over_once_a_weight_decides() -> None:
    shown = display(label="rejected", settled="a + b", evidence=Evidence("rejected", typed_out=True, shown_chars=5))
    assert resolve(shown, make_generation(), [], SPEC).withheld == "typed_out"
    resolution = resolve(shown, make_generation(), [], RewardWeights(typed_out=0.5))
    assert (resolution.withheld, resolution.experience.reward) == (None, 0.25)


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("file:///home/dev/a%20b/main.PY", "python"),
        ("/src/x.tsx", "typescript"),
        ("C:\\work\\x.rs", "rust"),
        ("vscode-remote://wsl/home/x.go", "go"),
        ("Makefile", "unknown"),
        ("/a.b/Makefile", "unknown"),
        ("", "unknown"),
        ("x.zzz", "unknown"),
    ],
)
def test_languages(path: str, language: str) -> None:
    assert language_of(path) == language


@pytest.mark.parametrize(
    ("part", "shown", "known"), [("line", "a + b", "a + b"), ("line", "\n    a", None), ("word", "a", None)]
)
def test_of_a_partial_accept_the_rest_of_the_line_is_known_or_nothing(part: str, shown: str, known: str | None) -> None:
    generation = make_generation(shown + "\nmore")
    experience = resolve(display(shown, accepted_part=part), generation, [], SPEC).experience
    assert (experience.label, experience.reward, experience.accepted_part) == ("accepted", 0.75, part)
    assert experience.reference == (Reference(kind="accepted", text=known) if known else None)


def test_a_reject_of_what_was_shown_again_is_withheld_and_an_accept_is_not() -> None:
    generation = make_generation()
    assert resolve(display(label="rejected", shown_again=True), generation, [], SPEC).withheld == "shown_again"
    assert resolve(display(shown_again=True), generation, [], SPEC).withheld is None
