"""`python -m services.gateway`: serve on `TABWISE_GATEWAY_HOST:TABWISE_GATEWAY_PORT` until SIGTERM.

Exit status 0: stopped as told. 2: a setting must be changed; the last line says which.
"""

from __future__ import annotations

import socket
import sys

from services.gateway.app import create_app
from services.gateway.server import GracefulServer
from services.gateway.settings import GatewaySettings
from shared.kit.collector import spare_collector
from shared.kit.errors import SettingsError
from shared.kit.logging import configure_logging


def main() -> int:
    """Returns the exit status."""
    try:
        settings = GatewaySettings.load()
        configure_logging("gateway", settings.log_level, settings.log_format)
        listener = _listen(settings.gateway_host, settings.gateway_port)
        with listener:
            server = GracefulServer(create_app(settings), settings)
            spare_collector()
            server.run(sockets=[listener])
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """Bound here, so that a port that is taken is one sentence instead of a traceback."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol must be named, or asyncio leaves Nagle on and small chunks wait 40 ms for an acknowledgement
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}:{port} ({error.strerror}): "
            "change TABWISE_GATEWAY_PORT or TABWISE_GATEWAY_HOST, or stop what uses it"
        ) from error
    return listener


if __name__ == "__main__":
    sys.exit(main())
