"""Simulated developers without HTTP. They meet the moments that `clients.developer.session` gives them with the same
seed, and judge by the same rule; an accepted rest of line is not typed, so nobody pauses on it again."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass

from clients.developer.moments import Moment, moment_at, walk_module
from clients.developer.persona import Persona, assign, load_personas
from clients.developer.prompts import fim_prompt, shown_text
from clients.developer.work import team_modules, team_style

STYLE = "harbor"


@dataclass(frozen=True, slots=True)
class Pause:
    """A developer waits for a completion."""

    path: str
    moment: Moment

    @property
    def prompt(self) -> str:
        """As the editor sends it."""
        return fim_prompt(self.moment.prefix, self.moment.suffix)

    def shown(self, raw: str) -> str:
        """What the editor shows of a completion; empty: nothing, and then there is no event."""
        return shown_text(raw, self.moment.prefix, self.moment.suffix)


class Developer:
    """One person at work. `pause` is where they are; `go_on` takes what they did with the completion."""

    def __init__(self, name: str, persona: Persona, seed: str) -> None:
        self.name, self.persona = name, persona
        self._work = _pauses(seed)
        self.pause = next(self._work)

    def accepts(self, shown: str) -> bool:
        """Whether they press Tab."""
        return self.persona.accepts(shown, self.pause.moment.rest_of_line)

    def go_on(self, accepted: bool) -> None:
        """To the next pause."""
        self.pause = self._work.send(accepted)


def make_team(count: int, seed: int) -> list[Developer]:
    """As `clients.developer.team` puts one together."""
    personas = assign(load_personas(), count)
    return [Developer(f"dev{n:02d}", persona, f"{seed}:dev{n:02d}") for n, persona in enumerate(personas)]


def _pauses(seed: str) -> Generator[Pause, bool, None]:
    for number, module in enumerate(team_modules(random.Random(seed), team_style(STYLE))):
        for walk in walk_module(module.source, random.Random(f"{seed}:{number}")):
            for line in walk.lines:
                typed = 0
                for column in line.pauses:
                    if column >= typed:
                        accepted = yield Pause(module.path, moment_at(module.source, walk, line.number, column))
                        typed = len(line.text) if accepted else column
