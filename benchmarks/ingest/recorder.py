"""How fast one recorder moves generations from the stream into PostgreSQL.

`python -m benchmarks.ingest.recorder DATABASE_URL REDIS_URL --generations 20000` fills the stream, empties it with the
service's own recorder, and prints one JSON object: generations per second, CPU time of this process, rows committed.
A generation has 400 prompt tokens, 12 sampled ones and a prompt of 1.5 kB: `--texts code` (windows of the standard
library, each looked through for secrets as any developer's) or `uniform` (one line, repeated).
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import uvloop
from prometheus_client import CollectorRegistry
from sqlalchemy import func, select

from benchmarks.ingest.event import COMPLETION, PREFIX, SUFFIX
from benchmarks.ingest.windows import Window, windows
from services.ingest.metrics import IngestMetrics
from services.ingest.recorder import Recorder
from services.ingest.settings import IngestSettings
from shared import fim
from shared.contracts.generation import Generation, PolicySpan, Sampling
from shared.contracts.ids import new_request_id
from shared.contracts.names import STREAM_GENERATIONS
from shared.db.engine import async_sessions, make_async_engine
from shared.db.models import GenerationRow
from shared.streams import RedisStreams

PROMPT_TOKENS, SAMPLED_TOKENS = 400, 12
APPENDED_AT_ONCE = 500
STOPS = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "/src/",
)


UNIFORM = [Window(PREFIX, COMPLETION, SUFFIX)]


def generation(rng: random.Random, texts: Sequence[Window] = UNIFORM) -> Generation:
    """A new one, as the gateway makes them."""
    place = rng.choice(texts)
    now = datetime.now(UTC)
    request_id = new_request_id(now)
    sampled = [rng.randrange(150_000) for _ in range(SAMPLED_TOKENS)]
    return Generation(
        generation_id=request_id,
        request_id=request_id,
        created_at=now,
        key_id="key-0123456789",
        project_id="default",
        protocol="openai",
        client_model="qwen2.5-coder-team",
        replica="http://127.0.0.1:8000",
        prompt=fim.render("qwen", f"# order {rng.randrange(10**9)}\n{place.prefix}", place.suffix),
        prompt_token_ids=[rng.randrange(150_000) for _ in range(PROMPT_TOKENS)],
        text=place.text,
        token_ids=sampled,
        logprobs=[-rng.random() for _ in sampled],
        text_offsets=list(range(0, 4 * SAMPLED_TOKENS, 4)),
        finish_reason="stop",
        sampling=Sampling(temperature=0.5, max_tokens=64, stop=STOPS),
        policy_spans=[PolicySpan(version=3, start=0, end=SAMPLED_TOKENS)],
        first_token_s=0.04,
        total_s=0.21,
    )


TEXTS: dict[str, Callable[[], Sequence[Window]]] = {"code": windows, "uniform": lambda: UNIFORM}


async def fill(streams: RedisStreams, count: int, texts: Sequence[Window] = UNIFORM) -> None:
    """`count` new generations in the stream."""
    rng = random.Random(uuid.uuid4().int)
    for _ in range(0, count, APPENDED_AT_ONCE):
        payloads = [generation(rng, texts).model_dump_json().encode() for _ in range(APPENDED_AT_ONCE)]
        await streams.append(STREAM_GENERATIONS, payloads)


async def drive(
    database_url: str, redis_url: str, generations: int, texts: Sequence[Window] = UNIFORM
) -> dict[str, float]:
    """Fill the stream, empty it, and say how long the second took."""
    settings = IngestSettings(database_url=database_url, redis_url=redis_url, api_keys="unused", recorder_name="bench")
    engine, streams = make_async_engine(database_url), RedisStreams.from_url(redis_url)
    sessions = async_sessions(engine)
    recorder = Recorder(settings, sessions, streams, IngestMetrics(CollectorRegistry()))
    await fill(streams, 2 * settings.recorder_batch_size, texts)  # opens connections, prepares statements
    await _empty(recorder, streams)
    await fill(streams, generations, texts)
    async with sessions() as session:
        before = await session.scalar(select(func.count()).select_from(GenerationRow)) or 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    await _empty(recorder, streams)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    async with sessions() as session:
        stored = (await session.scalar(select(func.count()).select_from(GenerationRow)) or 0) - before
    await streams.close()
    await engine.dispose()
    return {"stored": stored, "generations_per_s": stored / took_s, "cpu_us": 1e6 * cpu_s / max(1, stored)}


async def _empty(recorder: Recorder, streams: RedisStreams) -> None:
    while await streams.length(STREAM_GENERATIONS):
        await recorder.step()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database_url")
    parser.add_argument("redis_url")
    parser.add_argument("--generations", type=int, default=20_000)
    parser.add_argument("--texts", choices=list(TEXTS), default="code")
    given = parser.parse_args()
    texts = TEXTS[given.texts]()
    print(json.dumps(uvloop.run(drive(given.database_url, given.redis_url, given.generations, texts))))


if __name__ == "__main__":
    main()
