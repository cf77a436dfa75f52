"""`python -m benchmarks.settled`: precision and recall as lines of JSON."""

from __future__ import annotations

import argparse
import sys

import orjson

from benchmarks.settled.figures import measure
from benchmarks.settled.sessions import make_session


def main(arguments: list[str] | None = None) -> int:
    """Simulate, look, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settled", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=20)
    options = parser.parse_args(arguments)
    sessions = [make_session(options.seed * 1000 + number) for number in range(options.sessions)]
    for session in sessions:
        session.run()
    for kind, count in measure(sessions).items():
        for figure in count.figures(kind):
            print(orjson.dumps(figure).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
