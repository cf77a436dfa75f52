"""One completion before the server opens its port: the first forward pass is slow (2 s, more on a busy machine).

Also the last check that the stamp is there: an engine that cannot say which weights it samples with must not serve.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from shared.kit.errors import SettingsError


def before_serving(init_app_state: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """vLLM's `init_app_state`, followed by a streamed completion."""

    async def init(engine_client: Any, state: Any, args: Any, *more: Any) -> None:
        await init_app_state(engine_client, state, args, *more)
        await _complete(state.openai_serving_completion)

    return init


async def _complete(serving: Any) -> None:
    protocol = import_module("vllm.entrypoints.openai.completion.protocol")
    request = protocol.CompletionRequest(
        prompt="def", max_tokens=8, stream=True, logprobs=0, return_token_ids=True, ignore_eos=True
    )
    events = await serving.create_completion(request)
    if not hasattr(events, "__aiter__"):
        raise SettingsError(f"the engine refuses a completion: {getattr(events, 'error', events)}")
    async for event in events:
        if not event.startswith(("data: [DONE]", 'data: {"weight_version":"')):
            raise SettingsError("the engine does not say which weights it samples with")
