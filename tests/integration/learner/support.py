"""A tiny base model on disk, and a real learner process driven over its socket."""

# torch and transformers are only partly typed
# mypy: disable-error-code="no-untyped-call,no-any-return"
from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from services.trainer.learner_api import (
    LEARNER_ADDRESS,
    LEARNER_AUTHKEY,
    LEARNER_CONFIG,
    REPLY,
    AnyReply,
    AnyRequest,
    CheckpointRef,
    LearnerConfig,
    LearnerReady,
    RoundDone,
    RoundFailed,
    Sampled,
    SampleRequest,
    StepDone,
    TrainGroup,
    TrainRequest,
    TrainSample,
)

VOCAB = 261
BASE = CheckpointRef(version=0, lineage="base", folder=None)
_FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>", "<|fim_pad|>"]


def write_base(folder: Path) -> Path:
    """A random two-layer Qwen2 with a tokenizer of bytes and Qwen's FIM tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": _FIM})
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def groups(seed: int, count: int = 3, samples: int = 4) -> list[TrainGroup]:
    """Random groups; behaviour logprobs near those of a random model over 261 tokens."""
    random = Random(seed)
    return [_group(random, f"g{seed}-{i}", samples) for i in range(count)]


def _group(random: Random, name: str, samples: int) -> TrainGroup:
    prompt = [random.randrange(VOCAB) for _ in range(random.randint(4, 40))]
    return TrainGroup(
        group_id=name,
        prompt_token_ids=prompt,
        temperature=random.choice([0.7, 1.0]),
        samples=[_sample(random) for _ in range(samples)],
    )


def _sample(random: Random) -> TrainSample:
    length = random.randint(1, 9)
    return TrainSample(
        token_ids=[random.randrange(VOCAB) for _ in range(length)],
        behaviour_logprobs=[-5.6 + random.uniform(-0.4, 0.4) for _ in range(length)],
        credited_tokens=random.randint(1, length),
        advantage=random.uniform(-1, 1),
    )


class Driver:
    """The trainer's end of one learner process."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.hello: AnyReply = self.receive()

    @property
    def ready(self) -> LearnerReady:
        assert isinstance(self.hello, LearnerReady), self.hello
        return self.hello

    def receive(self) -> AnyReply:
        assert self.connection.poll(120), "the learner says nothing"
        return REPLY.validate_json(self.connection.recv_bytes())

    def send(self, request: AnyRequest) -> None:
        self.connection.send_bytes(request.model_dump_json().encode())

    def train(self, request: TrainRequest) -> tuple[list[StepDone], RoundDone | RoundFailed]:
        self.send(request)
        return self.replies()

    def sample(self, request: SampleRequest) -> Sampled | RoundFailed:
        self.send(request)
        reply = self.receive()
        assert isinstance(reply, Sampled | RoundFailed)
        return reply

    def replies(self) -> tuple[list[StepDone], RoundDone | RoundFailed]:
        steps: list[StepDone] = []
        while isinstance(reply := self.receive(), StepDone):
            steps.append(reply)
        assert isinstance(reply, RoundDone | RoundFailed)
        return steps, reply


@contextmanager
def learner(config: LearnerConfig, ranks: int = 1) -> Iterator[Driver]:
    """Start a learner as the trainer does, wait until it is ready, and hang up at the end."""
    module = ["-m", "services.trainer.learner"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    key = secrets.token_bytes(16)
    with (
        tempfile.TemporaryDirectory(prefix="learner-") as folder,
        Listener(f"{folder}/socket", authkey=key) as listener,
    ):
        environment = os.environ | {
            LEARNER_CONFIG: config.model_dump_json(),
            LEARNER_ADDRESS: f"{folder}/socket",
            LEARNER_AUTHKEY: key.hex(),
        }
        process = subprocess.Popen([*(torchrun if ranks > 1 else [sys.executable]), *module], env=environment)
        try:
            with listener.accept() as connection:
                yield Driver(process, connection)
            process.wait(30)
        finally:
            process.kill()
            process.wait()
