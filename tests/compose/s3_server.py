"""An S3 test server on port 9000 with the bucket that docker-compose.yml expects."""

from __future__ import annotations

import signal
import urllib.request

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="0.0.0.0", port=9000, verbose=False)
server.start()
urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:9000/tabwise", method="PUT"), timeout=10)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
server.stop()
