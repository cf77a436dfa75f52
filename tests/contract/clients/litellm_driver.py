"""LiteLLM, driven by JSON lines; runs with LiteLLM's own folder in front of the environment.

In: the arguments of `litellm.text_completion`. Out: `{"chunk": …}` for each (one where nothing is streamed), then
`{"done": true}` or `{"error": {"name", "message"}}`.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def say(value: dict[str, Any]) -> None:
    """One line."""
    sys.__stdout__.write(json.dumps(value) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def complete(litellm: Any, arguments: dict[str, Any]) -> None:
    """One completion."""
    answer = litellm.text_completion(**arguments)
    for chunk in answer if arguments.get("stream") else [answer]:
        say({"chunk": chunk.model_dump(mode="json")})


def main() -> None:
    """Until there are no more lines."""
    sys.stdout = sys.stderr  # LiteLLM prints
    import litellm  # type: ignore[import-not-found]

    litellm.telemetry = False
    litellm.num_retries = 0
    for line in sys.stdin:
        try:
            complete(litellm, json.loads(line))
        except Exception as error:  # whatever it is, the test wants to hear of it
            say({"error": {"name": type(error).__name__, "message": str(error)}})
        else:
            say({"done": True})


if __name__ == "__main__":
    main()
