"""Two engines that must be alike: the fake one, and vLLM as `services.engine` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.embedded import free_port
from tests.contract import tiny_model
from tests.fakes import toy_model
from tests.fakes.engine import FakeEngine

MAX_MODEL_LEN = 512
PROMPT = "def total(items):\n    result = 0\n"
LONG = "result += item.price\n" * 22


@dataclass
class Engine:
    """One engine under test. `folders`: three sets of weights, the base first; `None` loads the base."""

    url: str
    folders: list[Path]
    logprobs: Callable[[Path, list[int]], list[float]]
    """What the learner would write into a probe for these weights."""
    running: Callable[[], int]
    """Requests that it works on."""
    client: httpx.Client
    fake: FakeEngine | None = None

    def post(self, path: str, **more: Any) -> httpx.Response:
        """One request on a connection of its own."""
        return self.client.post(self.url + path, headers={"Connection": "close"}, **more)

    def get(self, path: str) -> Any:
        return self.client.get(self.url + path).json()

    def body(self, **more: Any) -> dict[str, Any]:
        return {"model": "tabwise", "prompt": PROMPT, "max_tokens": 12, "logprobs": 0, "return_token_ids": True} | more

    def complete(self, **more: Any) -> dict[str, Any]:
        """The unstreamed answer."""
        answer = self.post("/v1/completions", json=self.body(**more))
        assert answer.status_code == 200, answer.text
        whole: dict[str, Any] = answer.json()
        return whole

    @contextmanager
    def stream(self, **more: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The chunks as they come; hangs up at the end of the block."""
        body = self.body(stream=True, **more)
        url = self.url + "/v1/completions"
        with self.client.stream("POST", url, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            yield chunks(answer.iter_lines())

    def load(self, folder: Path | None, version: str) -> None:
        """As the publisher does it."""
        self.post("/pause", params={"mode": "keep"}).raise_for_status()
        self.rpc(folder).raise_for_status()
        self.post("/update_weight_version", json={"new_version": version}).raise_for_status()
        reset = self.post("/reset_prefix_cache", params={"reset_running_requests": "true"})
        assert reset.json() == {"success": True}
        self.post("/resume").raise_for_status()

    def rpc(self, folder: Path | None) -> httpx.Response:
        kwargs = {"weights_path": None if folder is None else str(folder)}
        return self.post("/collective_rpc", json={"method": "load_checkpoint", "kwargs": kwargs})

    def scripted(self, text: str | None) -> None:
        """The fake samples this text; the real one whatever it likes."""
        if self.fake is not None:
            self.fake.reply = text


def chunks(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Parsed events; checks the framing and that `[DONE]` is last."""
    done = False
    for line in lines:
        if not line:
            continue
        assert line.startswith("data: "), line
        assert not done
        if line == "data: [DONE]":
            done = True
        else:
            yield json.loads(line[6:])
    assert done


@pytest.fixture(scope="session")
def vllm_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The real one, for all of a test process."""
    with _vllm(tmp_path_factory.mktemp("vllm")) as engine:
        yield engine


@pytest.fixture(scope="module", params=["fake", pytest.param("vllm", marks=pytest.mark.engine)])
def shared_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if request.param == "vllm":
        yield request.getfixturevalue("vllm_engine")
        return
    with _fake(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine: Engine) -> Engine:
    """Base weights under the label `default`, not paused, nothing running."""
    shared_engine.scripted(None)
    shared_engine.load(None, "default")
    return shared_engine


@contextmanager
def _fake(folder: Path) -> Iterator[Engine]:
    folders = [folder / name for name in ("base", "one", "two")]
    for path in folders[1:]:
        path.mkdir()
        (path / "model.safetensors").write_text(path.name)

    def logprobs(path: Path, token_ids: list[int]) -> list[float]:
        weights = toy_model.BASE_WEIGHTS if path == folders[0] else toy_model.weights_digest(path)
        return toy_model.prompt_logprobs(weights, token_ids)

    with FakeEngine(max_model_len=MAX_MODEL_LEN) as fake, _client() as client:
        fake.faults.token_delay_s = 0.002
        yield Engine(fake.url, folders, logprobs, lambda: fake.running, client, fake)


@contextmanager
def _vllm(folder: Path) -> Iterator[Engine]:
    base = tiny_model.build(folder / "base", layers=4, width=256)  # slow enough to be interrupted in mid-generation
    folders = [base, *(tiny_model.perturb(base, folder / f"v{seed}", scale=0.05, seed=seed) for seed in (1, 2))]
    port = free_port()
    told = {"MODEL_PATH": str(base), "ENGINE_PORT": str(port), "MAX_MODEL_LEN": str(MAX_MODEL_LEN)}
    environment = os.environ | {f"TABWISE_{name}": value for name, value in told.items()}
    log = folder / "engine.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "services.engine"]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _await_health(url, process, log)
        with _client() as client:
            yield Engine(url, folders, tiny_model.logprobs, lambda: _running(url), client)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 0, log.read_text()[-2000:]
        finally:
            process.kill()


def _client() -> httpx.Client:
    return httpx.Client(timeout=60, trust_env=False)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(url + "/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def _running(url: str) -> int:
    lines = httpx.get(url + "/metrics", trust_env=False).text.splitlines()
    found = [line for line in lines if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in found)
