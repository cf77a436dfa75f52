"""A chat server as OpenAI's: it says "Bonjour 😀", streamed or not, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("Bonjour", " 😀")


class ChatServer(ThreadingHTTPServer):
    """On a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        """Path, headers (names in lower case) and body of each request."""

    @property
    def url(self) -> str:
        """Base URL, as an SDK wants it."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, body))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        self.wfile.write(_streamed() if body.get("stream") else json.dumps(_whole()).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "chat"}


def _whole() -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(WORDS)}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    return _head("chat.completion") | {"choices": [choice], "usage": usage}


def _streamed() -> bytes:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": word}, "finish_reason": None} for word in WORDS]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [json.dumps(_head("chat.completion.chunk") | {"choices": [choice]}) for choice in choices]
    return "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]).encode()


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Serves for the length of the block."""
    with ChatServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
