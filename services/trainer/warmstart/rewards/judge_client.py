"""The HTTP side of an LLM judge: one question to an OpenAI-compatible endpoint, asked again where that may help.

No code leaves the network: unless external hosts are allowed, every address that is connected to must be a private one,
also of a name that resolves differently later; redirects are not followed, proxies of the environment not used.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from ipaddress import ip_address
from socket import AddressFamily
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from shared.kit.errors import SettingsError, TabwiseError

_LONGEST_ANSWER: Final = 1 << 20
_LONGEST_PAUSE_S = 30.0


class JudgeUnavailable(TabwiseError):
    """No answer, however often it was asked."""


class JudgeRefused(TabwiseError):
    """The endpoint says that this one question is wrong, as when it is too long."""


class JudgeMisconfigured(TabwiseError):
    """The endpoint says that none of our questions will do: key, path or model."""


class ExternalHost(SettingsError):
    """The address isn't one of a private network."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"llm_judge: base_url: {host} is not in a private network, and no code leaves yours; set allow_external: "
            "true if that is meant"
        )


class Endpoint:
    """One session; an async context manager."""

    def __init__(self, url: str, key: str | None, *, timeout_s: float, retries: int, backoff_s: float, external: bool):
        self._url = URL(url.rstrip("/") + "/chat/completions")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._retries, self._backoff_s, self._external = retries, backoff_s, external

    async def __aenter__(self) -> Endpoint:
        resolver = None if self._external else PrivateAddresses()
        connector = aiohttp.TCPConnector(resolver=resolver, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, body: Mapping[str, Any]) -> str:
        """The text of the answer. Raises the errors above."""
        for attempt in range(self._retries + 1):
            try:
                status, pause_s, answer = await self._post(body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason, pause_s = type(error).__name__, None
            else:
                if status == 200:
                    return answer
                reason = f"status {status}"
                _give_up(status, self._url)
            if attempt < self._retries:
                await asyncio.sleep(self._pause(attempt, pause_s))
        raise JudgeUnavailable(f"{self._url} gave no answer in {self._retries + 1} attempts ({reason})")

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, float | None, str]:
        async with self._session.post(self._url, json=body, allow_redirects=False) as response:
            data = await response.content.read(_LONGEST_ANSWER)
            if response.status != 200:
                return response.status, _retry_after(response.headers), ""
            return 200, None, _text_of(data)

    def _pause(self, attempt: int, asked_s: float | None) -> float:
        """Doubling, with half of it left to chance; or what the endpoint asks for."""
        own_s = self._backoff_s * 2**attempt * random.uniform(0.5, 1)
        return float(min(max(own_s, asked_s or 0.0), _LONGEST_PAUSE_S))


class PrivateAddresses(AbstractResolver):
    """Resolves names as usual, and refuses those that lead out of the private network."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_INET
    ) -> list[ResolveResult]:
        """Raises `ExternalHost`."""
        found = await self._resolver.resolve(host, port, family)
        if outside := [place["host"] for place in found if not is_private(place["host"])]:
            raise ExternalHost(f"{host} ({outside[0]})")
        return found

    async def close(self) -> None:
        """Nothing is held."""
        await self._resolver.close()


def is_private(address: str) -> bool:
    """Of this machine, a private network or a link: not routed in the internet. Raises `ValueError` for a name."""
    ip = ip_address(address.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return not (ip.is_global or ip.is_unspecified or ip.is_multicast)


def _give_up(status: int, url: URL) -> None:
    """Raise where asking again is of no use."""
    if status in (401, 403, 404, 405) or 300 <= status < 400:
        raise JudgeMisconfigured(
            f"{url} answers with status {status}: check base_url, model and the key in api_key_env"
        )
    if 400 <= status < 500 and status not in (408, 409, 425, 429):
        raise JudgeRefused(f"status {status}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def _text_of(data: bytes) -> str:
    """Of the first choice; empty where the answer isn't one of a chat completion."""
    try:
        text = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return ""
    return text if isinstance(text, str) else ""
