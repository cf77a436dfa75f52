"""Which tokens run where. In: groups. Out: lanes and micro-batches. Pure, torch-free, the same on every rank.

A *lane* is one prompt followed by its samples, `[prompt | y1 | … | yG]`: the prompt runs once for all of them. Position
ids restart after the prompt for each sample, and a sample sees the prompt and itself (`attention`).
A *micro-batch* is a few lanes within one budget of tokens. Where attention skips what is not seen, they lie in one
row, `[prompt | y1 | … | yG][prompt | y1 | …]…`, without padding. A dense mask skips nothing: every token of such a row
would be scored against all the other groups' only to be masked out again (measured in docs/decisions/0005-learner.md),
so there lanes of similar length are stacked, each in a row of its own.

Only what the loss needs is run. Tokens after `credited_tokens` are not, and the last credited token is not either: it
is predicted, and nothing is predicted from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.trainer.learner_api import TrainGroup, TrainSample

PROMPT_SEGMENT = 0
"""Segment id of prompt tokens, which every segment of the lane sees. Samples count from 1."""


@dataclass(slots=True)
class Lane:
    """One packed group, or a part of one. L input tokens, N credited tokens.

    `predict_at[n]` is the lane's position whose hidden state predicts `targets[n]`: the last prompt position for a
    sample's first token, the position of its token t-1 for its token t.
    """

    token_ids: list[int]
    position_ids: list[int]
    segment_ids: list[int]
    predict_at: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    behaviour_logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    sample_lengths: list[int] = field(default_factory=list)
    """Credited tokens of each sample, in order."""
    off_policy: bool = False

    @property
    def length(self) -> int:
        """L."""
        return len(self.token_ids)

    @property
    def credited(self) -> int:
        """N."""
        return len(self.targets)

    @property
    def prompt_length(self) -> int:
        """P, tokens."""
        return self.segment_ids.count(PROMPT_SEGMENT)


def make_lane(group: TrainGroup, samples: Sequence[TrainSample]) -> Lane:
    """Pack these samples of one group behind their prompt."""
    prompt = group.prompt_token_ids
    if not prompt:
        raise ValueError(f"group {group.group_id} has an empty prompt: nothing predicts its first token")
    lane = Lane(list(prompt), list(range(len(prompt))), [PROMPT_SEGMENT] * len(prompt), off_policy=group.off_policy)
    for segment, sample in enumerate(samples, start=1):
        _append(lane, sample, segment, len(prompt), group.temperature)
    return lane


def _append(lane: Lane, sample: TrainSample, segment: int, prompt_length: int, temperature: float) -> None:
    credited = sample.credited_tokens
    if min(len(sample.token_ids), len(sample.behaviour_logprobs)) < credited:
        raise ValueError(f"credited_tokens is {credited}, but the sample has fewer token ids or logprobs")
    start, inputs = lane.length, sample.token_ids[: credited - 1]
    lane.token_ids += inputs
    lane.position_ids += range(prompt_length, prompt_length + len(inputs))
    lane.segment_ids += [segment] * len(inputs)
    lane.predict_at += [prompt_length - 1, *range(start, start + len(inputs))]
    lane.targets += sample.token_ids[:credited]
    lane.behaviour_logprobs += sample.behaviour_logprobs[:credited]
    lane.advantages += [sample.advantage] * credited
    lane.temperatures += [temperature] * credited
    lane.sample_lengths.append(credited)


def plan_lanes(groups: Iterable[TrainGroup], max_tokens: int) -> list[Lane]:
    """One lane per group; a group longer than `max_tokens` is split into lanes that repeat its prompt.

    A single sample that is longer than the budget together with its prompt gets a lane of its own: a prompt is never
    cut, because the model did not sample from a cut one.
    """
    return [make_lane(group, samples) for group in groups for samples in _split(group, max_tokens)]


def _split(group: TrainGroup, max_tokens: int) -> list[list[TrainSample]]:
    parts: list[list[TrainSample]] = []
    used = 0
    for sample in group.samples:
        size = sample.credited_tokens - 1
        if not parts or used + size > max_tokens:
            parts.append([])
            used = len(group.prompt_token_ids)
        parts[-1].append(sample)
        used += size
    return parts


def share_out(lanes: Sequence[Lane], ranks: int) -> list[list[Lane]]:
    """Lanes of each rank: longest first, each to the rank with the fewest tokens so far."""
    shares: list[list[Lane]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for lane in sorted(lanes, key=lambda lane: -lane.length):
        rank = load.index(min(load))
        shares[rank].append(lane)
        load[rank] += lane.length
    return shares


def micro_batches(lanes: Sequence[Lane], max_tokens: int, stacked: bool = True) -> list[list[Lane]]:
    """Lanes that run together, at most `max_tokens` positions; one lane that is longer runs alone.

    `stacked`: of similar length, and the padding to the longest counts; else one behind the other.
    """
    return _stacks(lanes, max_tokens) if stacked else _rows(lanes, max_tokens)


def _stacks(lanes: Sequence[Lane], max_tokens: int) -> list[list[Lane]]:
    batches: list[list[Lane]] = []
    for lane in sorted(lanes, key=lambda lane: -lane.length):
        if batches and batches[-1][0].length * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(lane)
        else:
            batches.append([lane])
    return batches


def _rows(lanes: Sequence[Lane], max_tokens: int) -> list[list[Lane]]:
    """Longest first, each into the first row that has room (first-fit decreasing)."""
    batches: list[list[Lane]] = []
    room: list[int] = []
    for lane in sorted(lanes, key=lambda lane: -lane.length):
        at = next((at for at, left in enumerate(room) if lane.length <= left), len(room))
        if at == len(room):
            batches.append([])
            room.append(max_tokens)
        batches[at].append(lane)
        room[at] -= lane.length
    return batches
