"""One developer at work: types functions line by line, pauses, looks at what is shown, presses Tab or types on.

In: modules to type, a persona, an editor. Out: what the tally and the editor's feedback say. Every choice (files,
moments, patience, reading time, taste) comes from the seed and the place in the file, never from the clock or from
earlier answers, so two runs with one seed meet the same moments and judge the same suggestion alike.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

from base_model.house import Module
from clients.developer.continue_client import ContinueEditor
from clients.developer.moments import FunctionWalk, LineWalk, Moment, moment_at, walk_module
from clients.developer.persona import Persona, similarity
from clients.developer.report import Tally

_KEYSTROKES_OF_A_CORRECTION = 2.0
"""Reaching the place of a correction takes as long as this many keystrokes, beside the corrected characters."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Simulated time: ``speed`` simulated seconds pass in one real one. ``stop`` wakes sleepers."""

    speed: float
    stop: asyncio.Event

    async def spend(self, simulated_s: float) -> None:
        """Let simulated time pass, or return early when the work is over."""
        try:
            async with asyncio.timeout(simulated_s / self.speed):
                await self.stop.wait()
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True)
class Developer:
    """A person, their editor and their work."""

    name: str
    persona: Persona
    seed: str
    work: Iterator[Module]
    editor: ContinueEditor
    pace: Pace
    tally: Tally

    async def run(self) -> None:
        """Type until the stop event is set."""
        for number, module in enumerate(self.work):
            seed = f"{self.seed}:{number}"
            for walk in walk_module(module.source, random.Random(seed)):
                for line in walk.lines:
                    if self.pace.stop.is_set():
                        return
                    await self._type_line(module, walk, line, f"{seed}:{line.number}")

    async def _type_line(self, module: Module, walk: FunctionWalk, line: LineWalk, seed: str) -> None:
        typed = len(line.text) - len(line.text.lstrip())
        for column in line.pauses:
            if column < typed or self.pace.stop.is_set():
                continue
            await self._type(column - typed)
            typed = column
            if self.pace.stop.is_set():
                return
            moment = moment_at(module.source, walk, line.number, column)
            taken = await self._pause(module, moment, random.Random(f"{seed}:{column}"))
            if taken is not None:
                await self._correct(taken, moment.rest_of_line)
                typed = len(line.text)
        await self._type(len(line.text) - typed)

    async def _pause(self, module: Module, moment: Moment, rng: random.Random) -> str | None:
        """Ask, look, decide. Returns the text that was accepted."""
        patience_s, reading_s = self.persona.draw_patience_s(rng), self.persona.draw_reading_s(rng)
        uri = f"file:///home/{self.name}/{module.path}"
        answer = await self.editor.ask(moment.prefix, moment.suffix, uri, patience_s)
        self.tally.answered(answer)
        if answer.outcome is None:
            return None
        shown = answer.outcome.completion
        close = similarity(shown, moment.rest_of_line)
        key = answer.outcome.completion_id
        self.tally.displayed(key, self.name, self.persona.name, self.persona.feedback, close, moment.rest_of_line)
        self.editor.display(answer.outcome)
        await asyncio.sleep(reading_s / self.pace.speed)
        if not self.persona.accepts(shown, moment.rest_of_line):
            return None
        self.editor.accept(key)
        return shown

    async def _type(self, characters: int) -> None:
        if characters > 0:
            await self.pace.spend(characters / self.persona.chars_per_s)

    async def _correct(self, taken: str, wanted: str) -> None:
        """Make the accepted text what it should be, so that the file reads as intended when they go on."""
        wrong = round((1 - similarity(taken, wanted)) * max(len(taken), len(wanted)))
        if wrong:
            await self.pace.spend((wrong + _KEYSTROKES_OF_A_CORRECTION) / self.persona.chars_per_s)
