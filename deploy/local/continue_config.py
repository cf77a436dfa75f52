"""The blocks to paste into the editor's settings."""

from __future__ import annotations

import yaml

from deploy.local.config import StackConfig

MODEL_FOR_CONTINUE = "qwen2.5-coder-team"
"""Continue picks its FIM template by this name: it must contain `qwen` and `coder`."""


def stock(config: StackConfig) -> str:
    """Continue as published, for VS Code and JetBrains: the whole `config.yaml`."""
    options = {"debounceDelay": 350, "maxPromptTokens": 1024, "useCache": False}
    feedback = {
        "name": "tabwise",
        "destination": f"{config.ingest_url}/v1/events/continue",
        "schema": "0.2.0",
        "level": "all",
        "events": ["autocomplete"],
        "apiKey": config.key,
    }
    head = {"name": "team", "version": "1.0.0", "schema": "v1"}
    return _yaml({**head, "models": [{**_model(config), "autocompleteOptions": options}], "data": [feedback]})


def fork(config: StackConfig) -> str:
    """RLinf's modified Continue: it takes the tracking options at the top and has no `data` block."""
    tracking = {
        "enableCompletionTracking": True,
        "completionTrackingUrl": f"{config.ingest_url}/api/training/submit",
        "completionTrackingHeaders": {"Authorization": f"Bearer {config.key}", "X-Project-ID": "default"},
        "maxPromptTokens": 1024,
        "debounceDelay": 350,
        "multilineCompletions": "auto",
    }
    return _yaml({"models": [_model(config)], "tabAutocompleteOptions": tracking})


def _model(config: StackConfig) -> dict[str, object]:
    return {
        "name": "tabwise",
        "provider": "openai",
        "model": MODEL_FOR_CONTINUE,
        "apiBase": f"{config.gateway_url}/v1",
        "apiKey": config.key,
        "roles": ["autocomplete"],
    }


class _Indented(yaml.SafeDumper):
    """List items further in than their key, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(document: dict[str, object]) -> str:
    return yaml.dump(document, Dumper=_Indented, sort_keys=False, width=120)
