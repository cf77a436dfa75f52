"""Developers without HTTP, and what the product would make of their verdicts."""

from __future__ import annotations

import random

from benchmarks.learning.product import PATIENCE, Judged, Waiting, experience
from benchmarks.learning.team import STYLE, Developer, Pause, make_team
from clients.developer.moments import walk_module
from clients.developer.work import team_modules, team_style
from services.ingest.rewards import RewardWeights
from services.trainer.learner_api import SampledCompletion, SampledGroup
from shared.contracts.experience import Label

WEIGHTS = RewardWeights()


def completion(text: str, *, ended: bool = True) -> SampledCompletion:
    """One token per character, and the end token."""
    size = len(text) + ended
    return SampledCompletion(
        token_ids=[ord(char) for char in text] + [0] * ended,
        logprobs=[-0.5] * size,
        text=text,
        text_offsets=list(range(size)),
        finish="stop" if ended else "length",
    )


def event(pause: Pause, label: Label, *texts: str) -> Judged:
    group = SampledGroup(prompt_token_ids=[1, 2, 3], samples=[completion(text) for text in texts])
    return Judged(
        number=7,
        developer="dev00",
        pause=pause,
        group=group,
        shown=pause.shown(texts[0]),
        label=label,
        version=3,
        temperature=0.5,
    )


def pauses(developer: Developer, count: int, *, accepted: bool) -> list[Pause]:
    met = []
    for _ in range(count):
        met.append(developer.pause)
        developer.go_on(accepted)
    return met


def test_moments_are_those_of_the_simulated_developers() -> None:
    """Nothing accepted: every pause of the walk that a developer with this seed takes."""
    (developer,) = make_team(1, seed=4)
    module = next(iter(team_modules(random.Random("4:dev00"), team_style(STYLE))))
    expected = [
        (line.number, column)
        for walk in walk_module(module.source, random.Random("4:dev00:0"))
        for line in walk.lines
        for column in line.pauses
    ]
    met = [(pause.moment.line, pause.moment.column) for pause in pauses(developer, len(expected), accepted=False)]
    assert met == expected


def test_nobody_pauses_on_what_was_accepted() -> None:
    (developer,) = make_team(1, seed=4)
    met = [(pause.path, pause.moment.line) for pause in pauses(developer, 60, accepted=True)]
    assert len(set(met)) == len(met)


def test_a_seed_decides() -> None:
    def prompts(seed: int) -> list[str]:
        return [pause.prompt for developer in make_team(3, seed) for pause in pauses(developer, 4, accepted=False)]

    assert prompts(1) == prompts(1) != prompts(2)


def test_accepted_with_siblings() -> None:
    (developer,) = make_team(1, seed=1)
    pause = developer.pause
    rest = pause.moment.rest_of_line
    made = experience(event(pause, "accepted", rest, "", rest + "\nnext"), None, WEIGHTS)

    assert made.withheld is None
    assert made.experience.reward == 0.75
    assert made.experience.reference is not None
    assert (made.experience.reference.kind, made.experience.reference.text) == ("accepted", rest)
    assert made.experience.shown.credited_tokens == len(rest) + 1  # the end token too: all of it was shown
    assert made.experience.shown.policy_version == 3
    assert [sibling.credited_tokens for sibling in made.experience.siblings] == [1, len(rest)]


def test_rejected_with_what_was_typed_instead() -> None:
    """The next request of the same developer shows it."""
    (developer,) = make_team(1, seed=1)
    pause = developer.pause
    waiting = Waiting(event(pause, "rejected", "wrong(everything)"))
    settled = None
    while settled is None and not waiting.over:
        developer.go_on(accepted=False)
        settled = waiting.look(developer.pause.prompt)
    assert settled == pause.moment.rest_of_line.rstrip()

    made = experience(waiting.event, settled, WEIGHTS)
    assert made.withheld is None
    assert made.experience.reward == -0.25
    assert made.experience.reference is not None
    assert made.experience.reference.kind == "settled"
    raw = experience(waiting.event, settled, RewardWeights(accepted=1.0, rejected=0.0))
    assert raw.experience.reward == 0.0


def test_waiting_ends() -> None:
    first, other = make_team(2, seed=1)
    waiting = Waiting(event(first.pause, "rejected", "wrong()"))
    for _ in range(PATIENCE):
        assert not waiting.over
        assert waiting.look(other.pause.prompt) is None
    assert waiting.over


def test_rejected_and_then_typed_by_hand_is_withheld() -> None:
    (developer,) = make_team(1, seed=1)
    rest = developer.pause.moment.rest_of_line
    made = experience(event(developer.pause, "rejected", rest), rest, WEIGHTS)
    assert made.withheld == "typed_out"
