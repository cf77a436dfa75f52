"""What goes over the wire, against literal copies of captured requests and Continue's published schema."""

from __future__ import annotations

import json
import re

from clients.developer.wire import EditorSettings, Outcome, completion_post, feedback_post, now_iso

PROMPT = "<|fim_prefix|>def f():\n    return <|fim_suffix|>\n\n<|fim_middle|>"
OUTCOME = Outcome(
    completion_id="3fbd4e09-7d5c-4c5f-a7b1-6c6b6c0ff0aa",
    prompt=PROMPT,
    prefix="def f():\n    return ",
    suffix="\n\n",
    completion="1",
    filepath="file:///home/dev00/house/a.py",
    time_ms=431,
    timestamp="2026-01-02T03:04:05.678Z",
    unique_id="machine-dev00",
)

ZOD_0_2_0 = {
    "timestamp": str, "userId": str, "userAgent": str, "selectedProfileId": str, "eventName": str, "schema": str,
    "disable": bool, "maxPromptTokens": int, "debounceDelay": int, "maxSuffixPercentage": float,
    "prefixPercentage": float, "transform": bool, "multilineCompletions": str,
    "slidingWindowPrefixPercentage": float, "slidingWindowSize": int, "useCache": bool, "onlyMyCode": bool,
    "useRecentlyEdited": bool, "useImports": bool, "accepted": bool, "time": int, "prefix": str, "suffix": str,
    "prompt": str, "completion": str, "modelProvider": str, "modelName": str, "cacheHit": bool, "filepath": str,
    "gitRepo": str, "completionId": str, "uniqueId": str,
}  # fmt: skip
"""`autocompleteEventSchema_0_2_0` of @continuedev/config-yaml 1.42.0, without its optional `template` and
`enabledStaticContextualization`, which stock Continue leaves out."""


def test_completion_request_is_continues() -> None:
    post = completion_post("http://host:8081/", "K", PROMPT)
    assert post.url == "http://host:8081/v1/completions"
    assert post.headers == {"Content-Type": "application/json", "Authorization": "Bearer K", "api-key": "K"}
    stop = [
        "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
        "<|file_sep|>", "<|im_start|>", "<|im_end|>", "/src/", "#- coding: utf-8", "```",
    ]  # fmt: skip
    assert json.dumps(post.body) == json.dumps(
        {
            "model": "qwen2.5-coder-team",
            "max_tokens": 4096,
            "temperature": 0.01,
            "stream": True,
            "stop": stop,
            "prompt": PROMPT,
        }
    )


def test_continue_event_has_exactly_the_schemas_fields() -> None:
    post = feedback_post("continue", "http://host:8082", "K", "p", OUTCOME, False, EditorSettings())
    assert post.url == "http://host:8082/v1/events/continue"
    assert post.headers == {"Content-Type": "application/json", "Authorization": "Bearer K"}
    envelope = dict(post.body)
    data = envelope.pop("data")
    assert envelope == {"name": "autocomplete", "schema": "0.2.0", "level": "all", "profileId": "local"}
    assert {name: type(value) for name, value in data.items()} == ZOD_0_2_0
    assert data["accepted"] is False
    assert data["prompt"] == PROMPT
    assert data["multilineCompletions"] in ("always", "never", "auto")


def test_rlinf_event_has_exactly_its_fields() -> None:
    post = feedback_post("rlinf", "http://host:8082", "K", "p", OUTCOME, True, EditorSettings())
    assert post.url == "http://host:8082/api/training/submit"
    assert post.headers["X-Project-ID"] == "p"
    assert post.headers["Authorization"] == "Bearer K"
    assert post.body == {
        "completionId": "3fbd4e09-7d5c-4c5f-a7b1-6c6b6c0ff0aa",
        "filepath": "file:///home/dev00/house/a.py",
        "prefix": "def f():\n    return ",
        "suffix": "\n\n",
        "prompt": PROMPT,
        "completion": "1",
        "modelProvider": "openai",
        "modelName": "qwen2.5-coder-team",
        "accepted": True,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "time": 431,
        "uniqueId": "machine-dev00",
        "numLines": 1,
        "cacheHit": False,
    }


def test_time_is_written_as_javascript_does() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now_iso())
