"""What gateway, trainer and publisher rely on in an engine. The fake one passes what vLLM passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.publisher.loading import Loader
from services.publisher.metrics import PublisherMetrics
from services.publisher.probe import max_difference, prompt_logprobs
from services.publisher.replicas import Replica
from services.publisher.upload import ServingFolder
from shared.contracts.checkpoint import Probe
from shared.storage import CheckpointStore, StorageConfig, open_store
from tests.contract.conftest import LONG, MAX_MODEL_LEN, Engine

pytestmark = pytest.mark.timeout(300)  # vLLM starts within the first test

CLOSE = 0.01
"""Nats by which two ways of computing the same logprob may differ in float32 (seen: 0.00001)."""


def only(answer: dict[str, Any]) -> Any:
    (choice,) = answer["choices"]
    return choice


def tokens_of(received: list[dict[str, Any]], index: int = 0) -> list[int]:
    choices = [choice for chunk in received for choice in chunk["choices"] if choice["index"] == index]
    return [token for choice in choices for token in choice["token_ids"]]


def logprobs_of(received: list[dict[str, Any]]) -> list[float]:
    return [value for chunk in received for value in only(chunk)["logprobs"]["token_logprobs"]]


# --- chunks ---


def test_a_stream_of_chunks(engine: Engine) -> None:
    with engine.stream() as arriving:
        received = list(arriving)
    assert len({chunk["id"] for chunk in received}) == 1
    assert all(chunk["id"].startswith("cmpl-") for chunk in received)
    assert {chunk["object"] for chunk in received} == {"text_completion"}
    assert {chunk["weight_version"] for chunk in received} == {"default"}
    assert not any("weight_versions" in chunk for chunk in received)
    first, *rest = [only(chunk) for chunk in received]
    assert len(first["prompt_token_ids"]) > 3
    assert all(choice["prompt_token_ids"] is None for choice in rest)
    assert [choice["finish_reason"] for choice in (first, *rest)][:-1] == [None] * len(rest)
    assert len(tokens_of(received)) <= 12


def test_ids_logprobs_and_offsets_are_aligned(engine: Engine) -> None:
    with engine.stream() as arriving:
        received = list(arriving)
    for chunk in received:
        choice = only(chunk)
        shown = choice["logprobs"]
        lengths = {len(choice["token_ids"])} | {
            len(shown[key]) for key in ("text_offset", "token_logprobs", "tokens", "top_logprobs")
        }
        assert len(lengths) == 1
        assert all(value <= 0 for value in shown["token_logprobs"])
    offsets = [offset for chunk in received for offset in only(chunk)["logprobs"]["text_offset"]]
    pieces = [piece for chunk in received for piece in only(chunk)["logprobs"]["tokens"]]
    assert offsets[0] == 0
    assert [b - a for a, b in pairwise(offsets)] == [len(piece) for piece in pieces[:-1]]


def test_streamed_or_not_it_is_the_same(engine: Engine) -> None:
    with engine.stream(temperature=0) as arriving:
        received = list(arriving)
    whole = engine.complete(temperature=0)
    choice = only(whole)
    assert choice["text"] == "".join(only(chunk)["text"] for chunk in received)
    assert choice["token_ids"] == tokens_of(received)
    assert max_difference(choice["logprobs"]["token_logprobs"], logprobs_of(received)) < CLOSE
    assert whole["weight_version"] == "default"
    assert choice["weight_versions"] == [["default", 0, len(choice["token_ids"])]]


def test_usage_comes_in_a_chunk_of_its_own(engine: Engine) -> None:
    with engine.stream(stream_options={"include_usage": True}) as arriving:
        received = list(arriving)
    *parts, last = received
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(tokens_of(parts))
    assert last["weight_version"] == "default"


def test_a_seed_repeats(engine: Engine) -> None:
    answers = [only(engine.complete(seed=11, temperature=1.0))["token_ids"] for _ in range(2)]
    assert answers[0] == answers[1]


def test_several_choices(engine: Engine) -> None:
    with engine.stream(n=3, temperature=1.0) as arriving:
        received = list(arriving)
    assert {only(chunk)["index"] for chunk in received} == {0, 1, 2}
    for index in range(3):
        finishes = [only(chunk)["finish_reason"] for chunk in received if only(chunk)["index"] == index]
        assert [reason for reason in finishes if reason] == finishes[-1:]
    assert [choice["index"] for choice in engine.complete(n=3, temperature=1.0)["choices"]] == [0, 1, 2]


def test_max_tokens(engine: Engine) -> None:
    engine.scripted(LONG)
    choice = only(engine.complete(max_tokens=5, ignore_eos=True))
    assert (len(choice["token_ids"]), choice["finish_reason"], choice["stop_reason"]) == (5, "length", None)


def test_a_stop_string_ends_it_and_is_not_in_the_text(engine: Engine) -> None:
    engine.scripted(LONG)
    free = only(engine.complete(temperature=0, max_tokens=24, ignore_eos=True))
    stop = free["text"][6:9]
    choice = only(engine.complete(temperature=0, max_tokens=24, ignore_eos=True, stop=[stop, "never in there"]))
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert choice["text"] == free["text"].partition(stop)[0]
    assert choice["token_ids"] == free["token_ids"][: len(choice["token_ids"])]
    assert len(choice["token_ids"]) < 24, "its own tokens are reported, nothing beyond"


# --- probabilities ---


def test_logprobs_are_those_of_the_sampled_distribution(engine: Engine) -> None:
    """At temperature 1 the model's own; at another, after temperature (`processed_logprobs`)."""
    engine.scripted(LONG)
    with engine.stream(temperature=1.0) as arriving:
        received = list(arriving)
    prompt = only(received[0])["prompt_token_ids"]
    expected = engine.logprobs(engine.folders[0], prompt + tokens_of(received))[len(prompt) - 1 :]
    assert max_difference(expected, logprobs_of(received)) < CLOSE
    cold = only(engine.complete(temperature=0.5, seed=3))
    cold_expected = engine.logprobs(engine.folders[0], prompt + cold["token_ids"])[len(prompt) - 1 :]
    assert max_difference(cold_expected, cold["logprobs"]["token_logprobs"]) > CLOSE


def test_prompt_logprobs_are_what_a_probe_compares(engine: Engine) -> None:
    ids = only(engine.complete())["prompt_token_ids"]
    for folder in (engine.folders[1], engine.folders[2], None):
        engine.load(folder, "x")
        answer = engine.complete(prompt=ids, max_tokens=1, temperature=0, prompt_logprobs=0)
        found = prompt_logprobs(answer, ids)
        assert max_difference(engine.logprobs(folder or engine.folders[0], ids), found) < CLOSE
        for other in set(engine.folders) - {folder or engine.folders[0]}:
            assert max_difference(engine.logprobs(other, ids), found) > CLOSE


# --- versions ---


def test_a_label_is_what_was_set(engine: Engine) -> None:
    assert engine.get("/weight_info") == {"weight_version": "default"}
    engine.load(engine.folders[1], "17")
    assert engine.get("/weight_info") == {"weight_version": "17"}
    assert engine.complete()["weight_version"] == "17"


def test_a_version_that_changes_in_mid_generation(engine: Engine) -> None:
    """The request is held, not lost; each token is stamped with the weights that really sampled it."""
    engine.scripted(LONG)
    with engine.stream(max_tokens=400, temperature=1.0, ignore_eos=True) as arriving:
        received = [next(arriving) for _ in range(5)]
        engine.load(engine.folders[1], "18")
        received += list(arriving)
    assert len(tokens_of(received)) == 400
    spans = spans_of(received)
    assert [version for version, _, _ in spans] == ["default", "18"]
    prompt = only(received[0])["prompt_token_ids"]
    found = logprobs_of(received)
    for (_, start, end), folder in zip(spans, engine.folders[:2], strict=True):
        expected = engine.logprobs(folder, prompt + tokens_of(received))[len(prompt) - 1 :]
        assert max_difference(expected[start:end], found[start:end]) < CLOSE


def spans_of(received: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """As the gateway reads them: a chunk's own spans where it has any, else its one version."""
    spans: list[tuple[str, int, int]] = []
    position = 0
    for chunk in received:
        count = len(only(chunk)["token_ids"])
        parts = chunk.get("weight_versions") or [[chunk["weight_version"], position, position + count]]
        position += count
        for version, start, end in parts:
            if spans and spans[-1][0] == version:
                spans[-1] = (version, spans[-1][1], end)
            else:
                spans.append((version, start, end))
    return spans


def test_every_choice_changes_its_version(engine: Engine) -> None:
    engine.scripted(LONG)
    with engine.stream(max_tokens=400, n=2, ignore_eos=True) as arriving:
        next(arriving)
        engine.load(engine.folders[2], "19")
        received = list(arriving)
    last = {only(chunk)["index"]: chunk["weight_version"] for chunk in received}
    assert last == {0: "19", 1: "19"}


# --- publishing ---


def test_a_publish_under_load_fails_no_completion(engine: Engine, tmp_path: Path) -> None:
    """The publisher's own loader, from the learner's folder to a verified version, while eight users complete."""
    store = CheckpointStore(open_store(StorageConfig(url=(tmp_path / "storage").as_uri())))
    serving = ServingFolder(store, tmp_path / "serving", None)
    probe = put(engine, store, engine.folders[1])
    serving.fetch(1)
    engine.scripted(LONG)
    done = threading.Event()
    with ThreadPoolExecutor(8) as users:
        answers = [users.submit(complete_until, done, engine) for _ in range(8)]
        time.sleep(0.5)
        with Replica(engine.url, "tabwise", admin_timeout_s=10, load_timeout_s=60) as replica:
            loader = Loader(serving, PublisherMetrics(CollectorRegistry()), probe_tolerance=0.02)
            attempts = [loader.bring(replica, 1, probe, [0]), loader.bring(replica, 0, None, [])]
        done.set()
    finishes = [reason for answer in answers for reason in answer.result()]
    assert [attempt.error for attempt in attempts] == [None, None]
    assert attempts[0].max_logprob_diff is not None
    assert attempts[0].max_logprob_diff < CLOSE
    assert len(finishes) >= 8
    assert set(finishes) == {"length"}
    pauses = ", ".join(f"{attempt.pause_s * 1000:.0f} ms" for attempt in attempts)
    print(f"paused {pauses}; probe within {attempts[0].max_logprob_diff:.2g}; {len(finishes)} completions")


def put(engine: Engine, store: CheckpointStore, folder: Path) -> Probe:
    """Into the storage, as version 1, with what the learner would have written."""
    ids = only(engine.complete())["prompt_token_ids"]
    probe = Probe(version=1, token_ids=ids, logprobs=engine.logprobs(folder, ids))
    names = [path.name for path in folder.iterdir()]
    store.put(folder, names, version=1, parent=0, probe=probe, created_at=datetime.now(UTC))
    return probe


def complete_until(done: threading.Event, engine: Engine) -> list[str]:
    """Finish reasons of one user's completions."""
    reasons = []
    while not done.is_set():
        reasons += [choice["finish_reason"] for choice in engine.complete(ignore_eos=True)["choices"]]
    return reasons


# --- pause ---


def test_a_pause_holds_and_a_resume_lets_go(engine: Engine) -> None:
    engine.scripted(LONG)
    assert engine.get("/is_paused") == {"is_paused": False}
    with engine.stream(max_tokens=200, ignore_eos=True) as arriving:
        next(arriving)
        assert engine.post("/pause", params={"mode": "keep"}).json() == {"status": "paused"}
        assert engine.get("/is_paused") == {"is_paused": True}
        began = time.monotonic()
        time.sleep(0.5)
        assert engine.post("/resume").json() == {"status": "resumed"}
        received = list(arriving)
    assert time.monotonic() - began >= 0.5
    assert only(received[-1])["finish_reason"] == "length"
    assert engine.get("/is_paused") == {"is_paused": False}


# --- failures ---


@pytest.mark.parametrize("content", [None, b"not safetensors at all"])
def test_a_failed_load_changes_nothing(engine: Engine, tmp_path: Path, content: bytes | None) -> None:
    if content is not None and engine.fake is not None:
        pytest.skip("the fake believes every file")
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    before = only(engine.complete(temperature=0))["logprobs"]["token_logprobs"]
    engine.post("/pause", params={"mode": "keep"}).raise_for_status()
    answer = engine.rpc(tmp_path)
    engine.post("/resume").raise_for_status()
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == 500
    assert max_difference(before, only(engine.complete(temperature=0))["logprobs"]["token_logprobs"]) < CLOSE
    assert engine.get("/weight_info") == {"weight_version": "default"}


def test_a_client_that_hangs_up_frees_the_engine(engine: Engine) -> None:
    engine.scripted(LONG)
    with engine.stream(max_tokens=400, ignore_eos=True) as arriving:
        next(arriving)
        until(lambda: engine.running() == 1, "it says that it does nothing")  # vLLM counts after it has sent
    until(lambda: engine.running() == 0, "it still generates for nobody")


def until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"prompt": [65] * (MAX_MODEL_LEN + 1)}, 400),
        ({"prompt": []}, 400),
        ({"max_tokens": -1}, 400),
        ({"model": "other"}, 404),
        ({"stream_options": {"include_usage": True}}, 400),
        ({"stream": True, "prompt_logprobs": 1}, 400),
    ],
)
def test_what_it_refuses(engine: Engine, change: dict[str, Any], status: int) -> None:
    answer = engine.post("/v1/completions", json=engine.body() | change)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == status
    assert error["message"]


def test_it_names_its_model(engine: Engine) -> None:
    (model,) = engine.get("/v1/models")["data"]
    assert (model["id"], model["max_model_len"]) == ("tabwise", MAX_MODEL_LEN)
