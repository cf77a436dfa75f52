"""vLLM's admin routes of one replica: the publisher's only seam to an engine.

Raises `TemporaryError` where it does not answer, `EngineRefused` where it answers that it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from services.publisher.probe import prompt_logprobs
from shared.contracts.names import BASE_POLICY_VERSION, ENGINE_UNSET_VERSION
from shared.kit.errors import TabwiseError, TemporaryError


class EngineRefused(TabwiseError):
    """The engine answered with an error; the message is its own, one line."""


class Replica:
    """One engine. Every call has a connection of its own: vLLM closes those on which it answered an error."""

    def __init__(self, url: str, model: str, *, admin_timeout_s: float, load_timeout_s: float) -> None:
        self.url = url
        self.name = urlsplit(url).netloc
        """Host and port: what logs, rows and metrics call it."""
        self._model = model
        self._load_timeout_s = load_timeout_s
        self._client = httpx.Client(
            base_url=url, timeout=admin_timeout_s, trust_env=False, headers={"Connection": "close"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._client.close()

    def label(self) -> str:
        """The weight version that it says it serves."""
        return str(self._ask("GET", "/weight_info")["weight_version"])

    def paused(self) -> bool:
        """Whether generation is held."""
        return bool(self._ask("GET", "/is_paused")["is_paused"])

    def pause(self) -> None:
        """Hold all requests where they are; none is lost. Returns when no step is running."""
        self._ask("POST", "/pause", params={"mode": "keep"})

    def resume(self) -> None:
        """Let them go on. Tried three times, because users wait."""
        for attempt in range(3):
            try:
                self._ask("POST", "/resume")
                return
            except TemporaryError:
                if attempt == 2:
                    raise

    def load(self, folder: str | None) -> None:
        """Replace the weights in place, or leave them as they are and raise; None: the engine's base model."""
        body = {"method": "load_checkpoint", "kwargs": {"weights_path": folder}}
        self._ask("POST", "/collective_rpc", json=body, timeout=self._load_timeout_s)

    def set_version(self, version: int) -> None:
        """What the tokens sampled from now on are stamped with."""
        self._ask("POST", "/update_weight_version", json={"new_version": label_of(version)})

    def reset_prefix_cache(self) -> None:
        """Forget keys and values of the old weights, also of held requests, which are computed anew."""
        answer = self._ask("POST", "/reset_prefix_cache", params={"reset_running_requests": "true"})
        if not answer.get("success"):
            raise EngineRefused("the prefix cache could not be reset")

    def probe(self, token_ids: Sequence[int]) -> list[float | None]:
        """log p(token[t + 1] | token[: t + 1]) under the weights that it serves."""
        body = {
            "model": self._model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        answer = self._ask("POST", "/v1/completions", json=body)
        try:
            return prompt_logprobs(answer, token_ids)
        except ValueError as error:
            raise EngineRefused(str(error)) from error

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            response = self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise TemporaryError(f"{self.name} does not answer {path} ({type(error).__name__})") from error
        if response.is_error:
            raise EngineRefused(f"{path} answered {response.status_code}: {_reason(response)}")
        try:
            body = response.json() if response.content else {}
        except ValueError as error:
            raise EngineRefused(f"{path} answered no JSON") from error
        return body if isinstance(body, dict) else {}


def label_of(version: int) -> str:
    """Our version as the engine's label."""
    return ENGINE_UNSET_VERSION if version == BASE_POLICY_VERSION else str(version)


def version_of(label: str) -> int | None:
    """The engine's label as our version; None where it is nobody's."""
    if label == ENGINE_UNSET_VERSION:
        return BASE_POLICY_VERSION
    return int(label) if label.isdecimal() else None


def _reason(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(text.split())[:300] or "nothing more"
