"""`python -m services.trainer.learner_node`: the learner's ranks on a node that is not the trainer's.

In: one line of JSON on standard input (`learner_nodes.Order`). Out: torchrun's exit status. Standard input stays open
while the trainer wants us; at its end (the trainer is gone, or the connection) all ranks here are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from pydantic import ValidationError

from services.trainer.learner_nodes import Order, outside_groups
from services.trainer.lifeline import dying_with_us


def main() -> None:
    """Entry point."""
    try:
        order = Order.model_validate_json(sys.stdin.buffer.readline())
    except ValidationError:
        sys.exit("services.trainer.learner_node is started by the trainer, which says on standard input what to run")
    ranks = subprocess.Popen(
        [sys.executable, *order.arguments],
        env=outside_groups() | order.environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=dying_with_us(),
    )
    threading.Thread(target=_end_with_input, args=(ranks.pid,), daemon=True).start()
    sys.exit(ranks.wait())


def _end_with_input(pid: int) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # not `stdin.read`, whose lock the interpreter wants at its end
        continue
    os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
