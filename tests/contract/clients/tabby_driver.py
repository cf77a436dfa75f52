"""tabby-agent 1.5.0, the part of Tabby's plugins that talks to the server, driven over `--stdio`.

Each request is a line `[id, {"func", "args"}]`, each answer `[id, result]` (None where the call was cancelled or
failed); what the agent says on its own is `[0, event]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.clients.installed import NODE_MODULES, node
from tests.contract.clients.lines import JsonLines

COMMAND = node(str(NODE_MODULES / "tabby-agent" / "dist" / "cli.js"), "--stdio")


class TabbyAgent:
    """One plugin's agent."""

    def __init__(self, child: JsonLines) -> None:
        self._child = child
        self._last_id = 0
        self._answers: dict[int, Any] = {}
        self.events: list[dict[str, Any]] = []
        """What it said on its own."""

    def start(self, endpoint: str, token: str) -> None:
        """Connect. Its usage statistics would go to Tabby's makers: off; no waiting for more keystrokes."""
        config = {
            "server": {"endpoint": endpoint, "token": token},
            "completion": {"debounce": {"mode": "fixed", "interval": 1}},
            "anonymousUsageTracking": {"disable": True},
        }
        ide = {"client": "tests", "ide": {"name": "tests", "version": "1"}, "tabby_plugin": {"name": "tests"}}
        options = {"config": config, "clientProperties": {"user": {}, "session": ide}}
        assert self.call("initialize", options) is True

    def call(self, function: str, *arguments: Any) -> Any:
        """The function's result."""
        return self.result(self.begin(function, *arguments))

    def begin(self, function: str, *arguments: Any) -> int:
        """Ask, and do not wait. Returns the request's id."""
        self._last_id += 1
        self._child.send([self._last_id, {"func": function, "args": list(arguments)}])
        return self._last_id

    def result(self, request: int) -> Any:
        """The result of what was begun."""
        while request not in self._answers:
            answered, value = self._child.receive()
            if answered == 0:
                self.events.append(value)
            else:
                self._answers[answered] = value
        return self._answers.pop(request)

    def begin_completion(self, prefix: str, suffix: str, **more: Any) -> int:
        """Ask for a completion between the two."""
        position = len(prefix.encode("utf-16-le")) // 2  # JavaScript counts so
        place = {"filepath": "/ws/src/add.py", "language": "python", "text": prefix + suffix, "position": position}
        # `signal: true` in the last argument is what makes a call one that can be cancelled
        return self.begin("provideCompletions", place | {"manually": True} | more, {"signal": True})

    def complete(self, prefix: str, suffix: str, **more: Any) -> Any:
        """`{"id", "choices": [{"index", "text", "replaceRange"}]}`; None where it failed."""
        return self.result(self.begin_completion(prefix, suffix, **more))

    def post_event(self, kind: str, completion_id: str, **more: Any) -> bool:
        """As the plugins do it: `view` on display, then `select` (Tab) or `dismiss`. Whether the server took it."""
        event = {"type": kind, "completion_id": completion_id, "choice_index": 0, "view_id": f"view-{completion_id}"}
        return bool(self.call("postEvent", event | more))


@contextmanager
def tabby_agent(home: Path) -> Iterator[TabbyAgent]:
    """An agent that keeps its files in `home`."""
    with JsonLines(COMMAND, home, os.environ | {"HOME": str(home)}) as child:
        yield TabbyAgent(child)
