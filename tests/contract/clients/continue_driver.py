"""Continue as it talks to a gateway: its own adapters, and the body that its core makes for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clients.developer.prompts import STOP, fim_prompt
from clients.developer.wire import MAX_TOKENS, MODEL, TEMPERATURE
from tests.contract.clients.gateway import KEY, Gateway
from tests.contract.clients.lines import JsonLines


class AdapterError(Exception):
    """What the adapter threw: `status` where the server answered, and its words."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.status: int | None = error.get("status")


@dataclass
class Continue:
    """One configured model: `provider` picks the adapter."""

    child: JsonLines
    gateway: Gateway
    provider: str = "openai"

    def call(self, method: str, body: dict[str, Any], *, hang_up_after: int | None = None) -> list[Any]:
        """The chunks as the adapter passes them on. Raises `AdapterError`."""
        api_base = f"{self.gateway.api}/"
        request = {"provider": self.provider, "apiBase": api_base, "apiKey": KEY, "method": method, "body": body}
        chunks: list[Any] = []
        self.child.send(request | ({} if hang_up_after is None else {"chunks": hang_up_after}))
        while "chunk" in (said := self.child.receive()):
            chunks.append(said["chunk"])
        if "error" in said:
            raise AdapterError(said["error"])
        return chunks

    def complete(self, prefix: str, suffix: str, *, hang_up_after: int | None = None, **more: Any) -> str:
        """Tab autocomplete with the providers `openai` and `vllm`: the prompt is Continue's."""
        body = {"model": MODEL, "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "stream": True}
        body |= {"stop": list(STOP), "prompt": fim_prompt(prefix, suffix)} | more
        chunks = self.call("completionStream", body, hang_up_after=hang_up_after)
        return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])

    def fill(self, prefix: str, suffix: str, *, hang_up_after: int | None = None, **more: Any) -> str:
        """Tab autocomplete with the providers `mistral` and `codestral`: the prompt is the server's."""
        body = {"model": "codestral-latest", "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "stream": True}
        body |= {"prompt": prefix, "suffix": suffix} | more
        chunks = self.call("fimStream", body, hang_up_after=hang_up_after)
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
