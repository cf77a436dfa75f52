"""How a completion is sampled: what the client asks for, within what the operator allows and wants explored. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from services.gateway.settings import GatewaySettings
from shared.contracts.generation import Sampling

LOWEST_TEMPERATURE = 0.01
"""vLLM raises a positive temperature below this to it; what is recorded must be what was sampled at."""


def make_sampling(
    settings: GatewaySettings,
    project_id: str,
    *,
    temperature: float,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    stop: Sequence[str] = (),
) -> Sampling:
    """`temperature` is the client's, or its protocol's default. An exact 0 asks for the greedy completion: it stays."""
    explored = settings.exploration.get(project_id)
    wanted = settings.temperature_override if explored is None or explored.temperature is None else explored.temperature
    if wanted is not None and temperature != 0:
        temperature = wanted
    if settings.explores_fully(project_id):
        top_p, top_k = None, None
    limit = settings.max_completion_tokens
    return Sampling(
        temperature=max(temperature, LOWEST_TEMPERATURE) if temperature > 0 else 0.0,
        top_p=1.0 if top_p is None else top_p,
        top_k=top_k or -1,
        max_tokens=min(max_tokens or limit, limit),
        seed=seed,
        stop=tuple(stop),
    )
