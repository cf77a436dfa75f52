"""Continue's published schemas are the judge of what we say about Continue: the events and the settings."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
import yaml

from clients.developer.prompts import fim_prompt
from clients.developer.wire import DEFAULT_SETTINGS, Outcome, continue_event, now_iso
from deploy.local.config import REPOSITORY
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.factories import continue_event as event_of_factories

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def outcome() -> Outcome:
    prefix, suffix = "def add(a, b):\n    return ", "\n"
    return Outcome(
        completion_id=str(uuid.uuid4()),
        prompt=fim_prompt(prefix, suffix),
        prefix=prefix,
        suffix=suffix,
        completion="a + b",
        filepath="file:///ws/add.py",
        time_ms=412,
        timestamp=now_iso(),
        unique_id=str(uuid.uuid4()),
    )


def judged(schemas: JsonLines, **what: Any) -> Any:
    schemas.send(what)
    answer = schemas.receive()
    assert "issues" not in answer, answer["issues"]
    return answer["parsed"]


@pytest.mark.parametrize("accepted", [True, False])
def test_simulated_developers_send_continues_events(schemas: JsonLines, accepted: bool) -> None:
    event = continue_event(outcome(), accepted, DEFAULT_SETTINGS)
    assert judged(schemas, event=event) == event["data"], "nothing missing, nothing that Continue does not send"


def test_the_tests_events_are_continues(schemas: JsonLines) -> None:
    """What ingest's own tests send it."""
    judged(schemas, event=event_of_factories())


def test_a_wrong_event_is_found(schemas: JsonLines) -> None:
    event = continue_event(outcome(), True, DEFAULT_SETTINGS)
    del event["data"]["prompt"]
    schemas.send({"event": event})
    assert [issue["path"] for issue in schemas.receive()["issues"]] == [["prompt"]]


def settings_of_readme() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "schema: v1" in block]
    return str(block)


def test_the_readmes_settings(schemas: JsonLines) -> None:
    text = settings_of_readme()
    parsed = judged(schemas, config=text)
    assert parsed["data"] == yaml.safe_load(text)["data"]


def test_continue_keeps_all_of_the_readmes_settings(schemas: JsonLines) -> None:
    """Continue drops what its schema does not know, without a word."""
    text = settings_of_readme()
    assert judged(schemas, config=text) == yaml.safe_load(text)
