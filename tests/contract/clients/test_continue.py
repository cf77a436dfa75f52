"""Continue's own adapters against the gateway: what its core receives, and what is recorded of it."""

from __future__ import annotations

import pytest

from clients.developer.prompts import STOP, fim_prompt
from clients.developer.wire import MODEL
from tests.contract.clients.continue_driver import AdapterError, Continue
from tests.contract.clients.gateway import Gateway, eventually
from tests.contract.clients.installed import LIMIT_S
from tests.contract.clients.lines import JsonLines
from tests.fakes.engine import FakeEngine

pytestmark = pytest.mark.timeout(LIMIT_S + 60)  # the packages may have to be installed first

PREFIX, SUFFIX = "def add(a, b):\n    return ", "\nprint(add(1, 2))\n"


@pytest.fixture(params=["openai", "vllm"])
def editor(request: pytest.FixtureRequest, adapters: JsonLines, gateway: Gateway) -> Continue:
    """The providers that Tabwise's settings name."""
    return Continue(adapters, gateway, request.param)


@pytest.fixture
def fim_editor(adapters: JsonLines, gateway: Gateway) -> Continue:
    """A provider whose server knows how to fill in the middle."""
    return Continue(adapters, gateway, "mistral")


def test_a_completion(editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply = "a + b  # é😀\n<|endoftext|>"
    assert editor.complete(PREFIX, SUFFIX) == "a + b  # é😀\n"
    recorded = gateway.generation()
    assert recorded.text == "a + b  # é😀\n"
    assert (recorded.prompt, recorded.client_model) == (fim_prompt(PREFIX, SUFFIX), MODEL)
    assert (recorded.sampling.stop, recorded.sampling.max_tokens) == (STOP, 64)
    assert recorded.untrainable is None


@pytest.mark.parametrize("marker", STOP)
def test_each_of_its_stop_strings_ends_it(
    adapters: JsonLines, gateway: Gateway, engine: FakeEngine, marker: str
) -> None:
    engine.reply = f"a + b\n{marker}junk"
    assert Continue(adapters, gateway).complete(PREFIX, SUFFIX) == gateway.generation().text == "a + b\n"


def test_hanging_up_at_the_first_line(editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply, engine.faults.token_delay_s = "a + b\n" + "x" * 50, 0.02
    shown = editor.complete(PREFIX, SUFFIX, hang_up_after=6)
    eventually(lambda: engine.running == 0)
    recorded = gateway.generation()
    assert engine.aborted == 1
    assert (recorded.client_gone, recorded.finish_reason) == (True, "abort")
    assert recorded.text.startswith(shown)
    assert "a + b\n".startswith(shown)
    assert len(recorded.text) < 30


def test_an_engine_that_dies_in_mid_stream(editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply, engine.faults.reset_after = "x" * 40, 10
    with pytest.raises(AdapterError):
        editor.complete(PREFIX, SUFFIX)
    assert gateway.generation().text == "x" * 10


def test_no_engine(editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    """The adapter's SDK tries twice more; its words are none of those that make Continue's core try five times more."""
    engine.faults.status = 503
    with pytest.raises(AdapterError) as refusal:
        editor.complete(PREFIX, SUFFIX)
    assert refusal.value.status == 503
    assert "overloaded" not in str(refusal.value).lower()


def test_a_wrong_request_is_told_which_field(editor: Continue, engine: FakeEngine) -> None:
    with pytest.raises(AdapterError, match="echo") as refusal:
        editor.complete(PREFIX, SUFFIX, echo=True)
    assert refusal.value.status == 400
    assert engine.requests == []


def test_models(adapters: JsonLines, gateway: Gateway) -> None:
    (models,) = Continue(adapters, gateway).call("list", {})
    assert "tabwise" in [model["id"] for model in models]


# --- the server fills in the middle ---


def test_filling_in(fim_editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply = "a + b  # é😀\n"
    assert fim_editor.fill(PREFIX, SUFFIX) == "a + b  # é😀\n"
    recorded = gateway.generation()
    assert recorded.text == "a + b  # é😀\n"
    assert recorded.prompt == fim_prompt(PREFIX, SUFFIX)
    assert (recorded.client_model, recorded.untrainable) == ("codestral-latest", None)


def test_hanging_up_on_filling_in(fim_editor: Continue, gateway: Gateway, engine: FakeEngine) -> None:
    engine.reply, engine.faults.token_delay_s = "x" * 60, 0.02
    shown = fim_editor.fill(PREFIX, SUFFIX, hang_up_after=6)
    eventually(lambda: engine.running == 0)
    recorded = gateway.generation()
    assert engine.aborted == 1
    assert recorded.client_gone
    assert recorded.text.startswith(shown)
    assert shown
