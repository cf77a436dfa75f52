"""Run under torchrun: the same two rounds with each of several settings, one after another in one process group.

`torchrun --nproc-per-node 2 -m tests.integration.learner.several_ranks FOLDER`: reads `FOLDER/configs.json` (a list of
`LearnerConfig`), writes each one's checkpoints and `steps.json` below `FOLDER/<its place>`.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch

from services.trainer.learner.ranks import Ranks, join_ranks
from services.trainer.learner.rounds import Learner
from services.trainer.learner_api import LearnerConfig, StepDone
from tests.integration.learner.conftest import first_round, second_round


def two_rounds(config: LearnerConfig, ranks: Ranks, folder: Path) -> list[StepDone]:
    """Base → 1 → 2."""
    learner, steps = Learner(config, ranks), list[StepDone]()
    learner.train(one := first_round(folder), steps.append)
    learner.train(second_round(folder, one.target), steps.append)
    return steps


def main(folder: Path) -> None:
    """All of them."""
    warnings.filterwarnings("ignore", category=FutureWarning, message="`torch.distributed")
    torch.set_num_threads(1)
    ranks = join_ranks()
    for place, said in enumerate(json.loads((folder / "configs.json").read_text())):
        own = folder / str(place)
        steps = two_rounds(LearnerConfig.model_validate(said), ranks, own)
        if ranks.first:
            (own / "steps.json").write_text(json.dumps([step.model_dump() for step in steps]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
