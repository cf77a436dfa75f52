"""The reward of a displayed completion. Pure; the numbers are settings (`TABWISE_REWARD_*`).

With accepted `+0.75` and rejected `-0.25` showing pays only above a 25 % chance of acceptance; silence is worth `0`.
Siblings are scored by the trainer with the same `RewardSpec`.
"""

from __future__ import annotations

from shared.contracts.experience import Label, RewardSpec


def reward_of_shown(label: Label, shown_text: str, spec: RewardSpec) -> float:
    """The reward of one resolved display."""
    if not shown_text.strip():
        return spec.silence
    return spec.accepted if label == "accepted" else spec.rejected
