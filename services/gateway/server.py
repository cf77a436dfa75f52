"""uvicorn, stopped so that nobody notices.

SIGTERM → `/ready` says 503 and answers carry `Connection: close`, while new requests are still taken for
`shutdown_delay_s` → no new connections, idle ones are closed → running completions end, for at most `shutdown_grace_s`
→ what was captured is handed over, for at most `capture_drain_s` → exit status 0. A second signal skips the delay.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from services.gateway.settings import GatewaySettings
from shared.web.reading import reading_within

_CLOSE = (b"connection", b"close")


class GracefulServer(uvicorn.Server):
    """Serves `app` until a signal; uvicorn's own would then kill itself by the same signal (status 143)."""

    def __init__(self, app: FastAPI, settings: GatewaySettings) -> None:
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=reading_within(settings.request_read_timeout_s),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=settings.shutdown_grace_s,
        )
        super().__init__(config)
        self._state = app.state
        self._delay_s = settings.shutdown_delay_s
        self._stop_at_s: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Only notes what was said; the server's tick does the rest within 0.1 s."""
        if self._stop_at_s is None:
            self._state.stopping = True
            self._stop_at_s = time.monotonic() + self._delay_s
        elif self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        else:
            self._stop_at_s = 0.0

    async def on_tick(self, counter: int) -> bool:
        """Every 0.1 s. True: stop now."""
        if self._stop_at_s is not None:
            if _CLOSE not in self.config.encoded_headers:
                self.config.encoded_headers.append(_CLOSE)
                self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
            self.should_exit = self.should_exit or time.monotonic() >= self._stop_at_s
        return await super().on_tick(counter)
