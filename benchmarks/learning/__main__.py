"""`python -m benchmarks.learning`: run what is missing, then print and draw what is there.

python -m benchmarks.learning --algorithms ours,raw,raw@2e-5 --seeds 1,2,3,4,5 --events 800 --out var/bench-learning
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import structlog

from benchmarks.learning.algorithms import ALGORITHMS, parse
from benchmarks.learning.figures import HEADLINE, curves, gains, ratio
from benchmarks.learning.results import Result, Results
from shared.kit.errors import SettingsError, TabwiseError


def main(arguments: list[str] | None = None) -> int:
    """Status 2 for a wrong option, 1 where a run failed; what was finished before stays."""
    options = _options(arguments)
    try:
        results = _run_all(options)
    except TabwiseError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1
    _report(results, options.out / "learning.png")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument(
        "--algorithms", default="ours,raw,reinforce_pp,tracker", help="of " + ", ".join(ALGORITHMS) + "; name@rate"
    )
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--events", type=int, default=800, help="judged completions of each run")
    parser.add_argument("--every", type=int, default=200, help="events between two evaluations")
    parser.add_argument("--moments", type=int, default=320, help="size of the held-out set")
    parser.add_argument("--model", default="models/tabwise-small", help="base model folder")
    parser.add_argument("--out", type=Path, default=Path("var/bench-learning"), help="results; what is there is kept")
    return parser.parse_args(arguments)


def _run_all(options: argparse.Namespace) -> dict[str, list[Result]]:
    from benchmarks.learning.run import Budget, Run  # torch takes seconds to import

    budget = Budget(events=options.events, every=options.every, moments=options.moments, model_path=options.model)
    algorithms = [parse(spec) for spec in options.algorithms.split(",")]
    seeds = _seeds(options.seeds)
    found: dict[str, list[Result]] = {algorithm.name: [] for algorithm in algorithms}
    progress = _Progress(len(seeds) * len(algorithms), budget.events)
    for seed in seeds:
        for algorithm in algorithms:
            store = Results(options.out, asdict(budget))
            result = store.load(algorithm.name, seed)
            if result is None:
                run = Run(algorithm, seed, budget, store.base_point())
                result = run.go(options.out / "learner.log", progress.of(f"{algorithm.name}, seed {seed}"))
                store.save(result)
                store.save_base_point(result.points[0])
            progress.done()
            found[algorithm.name].append(result)
    return found


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise SettingsError(f"--seeds: {text!r} is not a list of numbers such as 1,2,3") from None


class _Progress:
    """A line on stderr, with what is left by the pace so far."""

    def __init__(self, runs: int, events: int) -> None:
        self._left, self._events = runs, events
        self._began, self._worked = time.monotonic(), 0.0

    def of(self, name: str) -> Any:
        """What one run calls with its number of events."""
        before, told = self._worked, 0.0

        def tell(events: int) -> None:
            nonlocal told
            self._worked = before + events / self._events
            if time.monotonic() - told > 2:
                told = time.monotonic()
                left_s = (self._left - events / self._events) * (told - self._began) / max(self._worked, 1e-9)
                print(
                    f"{name}: {events}/{self._events} events, {left_s / 60:.0f} min left", file=sys.stderr, flush=True
                )

        return tell

    def done(self) -> None:
        """A run is finished, or was found finished."""
        self._left -= 1


def _report(results: dict[str, list[Result]], picture: Path) -> None:
    from benchmarks.learning.picture import draw

    draw(results, picture)
    for line in _lines(results):
        print(orjson.dumps(line).decode())


def _lines(results: dict[str, list[Result]]) -> Iterator[dict[str, Any]]:
    yield from curves(results)
    for algorithm, runs in results.items():
        for run in runs:
            yield {"bench": "learning", "figure": "run", "algorithm": algorithm, "seed": run.seed} | {
                "counts": run.counts,
                "seconds": run.seconds,
            }
    yield from gains(results)
    lines = (ratio(results, "sampled", "reward_gain_sampled"), ratio(results, HEADLINE, "reward_gain"))
    yield from (line for line in lines if line is not None)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sys.exit(main())
