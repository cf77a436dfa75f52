"""Which stream entries a round takes. In: the stream `experience`; out: parsed experience, once each.

Order: what this consumer had claimed before it died, then what dead consumers left, then new entries. Nothing is
claimed while too little is there and it has not waited long: unclaimed entries cost nothing and can go to anybody.

Where one key or one label fills a round and others wait behind it, more is claimed, and the round takes a mixture: no
key has more than its share (`shares.py`), and both labels are there if the shares allow it (`composition.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from services.trainer.composition import chosen, one_sided
from services.trainer.metrics import TrainerMetrics
from services.trainer.settings import TrainerSettings
from services.trainer.shares import fair, over
from shared.contracts.experience import Experience, Label
from shared.contracts.names import GROUP_TRAINER, STREAM_EXPERIENCE
from shared.kit.errors import InvalidMessage
from shared.streams.protocol import Entry, Streams

log = structlog.get_logger()


@dataclass
class Claim:
    """What one round holds. `entry_ids` are acknowledged together, after the commit."""

    experiences: list[Experience] = field(default_factory=list)
    """By order of the stream, each id once."""
    entries: list[Entry] = field(default_factory=list)
    """Those of `experiences`, position by position."""
    repeated: list[Entry] = field(default_factory=list)
    """Earlier entries with an id that came again."""

    @property
    def entry_ids(self) -> list[str]:
        """All of them."""
        return [entry.entry_id for entry in [*self.entries, *self.repeated]]

    @property
    def labels(self) -> list[Label]:
        """Of `experiences`."""
        return [one.label for one in self.experiences]

    @property
    def keys(self) -> list[str]:
        """Of `experiences`."""
        return [one.key_id for one in self.experiences]

    def only(self, places: Sequence[int]) -> Claim:
        """Without the experience at other places; earlier copies of any of them are still dealt with."""
        return Claim(
            [self.experiences[place] for place in places], [self.entries[place] for place in places], self.repeated
        )


class Waiting:
    """How long experience has been lying there, by this process's own clock."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._since_s: float | None = None

    def take(self, available: int, now_s: float) -> int:
        """How many entries to claim: whole mini-batches, or the rest once it has waited `max_wait_s`; 0: none yet."""
        if available == 0:
            self._since_s = None
            return 0
        if self._since_s is None:
            self._since_s = now_s
        whole = available - available % self._settings.minibatch_size
        wanted = whole or (available if now_s - self._since_s >= self._settings.max_wait_s else 0)
        return min(wanted, self._settings.round_size)

    def reset(self) -> None:
        """After a round: what is left starts to wait anew."""
        self._since_s = None


class Claims:
    """The trainer's side of the stream."""

    def __init__(self, streams: Streams, settings: TrainerSettings, metrics: TrainerMetrics) -> None:
        self._streams = streams
        self._settings = settings
        self._metrics = metrics
        self._own: set[str] = set()
        """Entries that this process claimed and no round has taken yet."""

    async def claim(self, count: int) -> Claim:
        """Up to `count` entries. What cannot be parsed is put aside as dead, with the reason.

        Where all have one label, or one key more than its share, and others wait behind them, some of those come in:
        what is put off for them stays claimed by this consumer, and comes first the next time.
        """
        claim = await self._parsed(Claim(), await self._entries(count))
        if len(claim.entries) == count:
            if one_sided(claim.labels):
                claim = await self._parsed(claim, await self._new(count))
            if over(claim.keys, self._settings.max_key_share) and await self._others_wait(claim):
                claim = await self._parsed(Claim(), await self._entries(max(count, self._settings.key_share_lookahead)))
        taken = claim.only(self._places(claim, count))
        self._own.difference_update(taken.entry_ids)
        return taken

    def _places(self, claim: Claim, count: int) -> list[int]:
        """Which experience to take: a fair share of each key, and within that both labels."""
        size, share, keys = self._settings.minibatch_size, self._settings.max_key_share, claim.keys
        first = fair(keys, count, size, share)
        pool = [*first, *sorted(set(range(len(keys))) - set(first))]
        mixed = [pool[place] for place in chosen([claim.labels[place] for place in pool], len(first))]
        wanted = list(dict.fromkeys([*mixed, *first]))
        return [wanted[place] for place in fair([keys[place] for place in wanted], count, size, share)]

    async def _others_wait(self, claim: Claim) -> bool:
        """Whether there is experience of another key, here or further behind. Claims nothing."""
        if len(set(claim.keys)) > 1:
            return True
        newest = max((entry.entry_id for entry in claim.entries), key=_order)
        ahead = self._settings.key_share_lookahead
        behind = await self._streams.entries(STREAM_EXPERIENCE, after=newest, count=ahead)
        return any(_key_of(entry.payload) not in (None, claim.keys[0]) for entry in behind)

    async def _parsed(self, claim: Claim, entries: list[Entry]) -> Claim:
        """With these entries. Of several with one id the last counts: it was handed over again (ingest's replay)."""
        places = {one.experience_id: place for place, one in enumerate(claim.experiences)}
        for entry in entries:
            try:
                experience = parse(entry.payload)
            except InvalidMessage as error:
                await self.bury(entry, str(error))
                continue
            place = places.setdefault(experience.experience_id, len(claim.entries))
            if place < len(claim.entries):
                claim.repeated.append(claim.entries[place])
                claim.experiences[place], claim.entries[place] = experience, entry
                continue
            claim.experiences.append(experience)
            claim.entries.append(entry)
        return claim

    async def bury(self, entry: Entry, reason: str) -> None:
        """Dead-letter one entry."""
        log.warning("experience put aside", entry_id=entry.entry_id, reason=reason)
        await self._streams.dead_letter(STREAM_EXPERIENCE, GROUP_TRAINER, entry, reason)
        self._metrics.experience.labels(disposition="dead").inc()

    async def ack(self, entry_ids: list[str]) -> None:
        """Acknowledge: only what a committed round has dealt with."""
        await self._streams.ack(STREAM_EXPERIENCE, GROUP_TRAINER, entry_ids)

    async def length(self) -> int:
        """Entries that are not acknowledged; also shown as the stream's lag."""
        length = await self._streams.length(STREAM_EXPERIENCE)
        self._metrics.stream_lag.set(length)
        return length

    async def _entries(self, count: int) -> list[Entry]:
        names = (STREAM_EXPERIENCE, GROUP_TRAINER, self._settings.trainer_consumer)
        await self._streams.ensure_group(STREAM_EXPERIENCE, GROUP_TRAINER)  # a Redis that lost its data lost it too
        found = {entry.entry_id: entry for entry in await self._streams.read_own(*names, count=count)}
        if len(found) < count:
            idle_ms = int(self._settings.claim_idle_s * 1000)
            for entry in await self._streams.claim_idle(*names, min_idle_ms=idle_ms, count=count):
                found.setdefault(entry.entry_id, entry)  # some may be our own again
        self._metrics.redelivered.inc(len(found.keys() - self._own))
        if len(found) < count:
            for entry in await self._new(count - len(found)):
                found[entry.entry_id] = entry
        self._own |= found.keys()
        return list(found.values())[:count]

    async def _new(self, count: int) -> list[Entry]:
        names = (STREAM_EXPERIENCE, GROUP_TRAINER, self._settings.trainer_consumer)
        entries = await self._streams.read(*names, count=count)
        self._own |= {entry.entry_id for entry in entries}
        return entries


def _order(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))


def _key_of(payload: bytes) -> str | None:
    try:
        return parse(payload).key_id
    except InvalidMessage:
        return None


def parse(payload: bytes) -> Experience:
    """Raises `InvalidMessage` with the first wrong field, never its value: that may be code."""
    try:
        return Experience.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InvalidMessage(f"{'.'.join(map(str, first['loc'])) or 'payload'}: {first['type']}") from None
