"""The warm start: trains the policy on the team's own repositories before anybody has used it. Torch-free.

In: `configs/warmstart.yaml`. Out: checkpoints `vNNNNNN/` that the learner process writes, and `final/`, a model folder.

    sources/ → filters, duplicates → corpus     files, and a count of what was dropped
    holes, tokens → samples                     a prompt and what stands there: `build_samples(load_config(path))`
    run                                         sample G completions, score, advantages, train: the learner of online
    publishing                                  the result as the next version of a running deployment
"""

from services.trainer.warmstart.config import WarmStartConfig as WarmStartConfig
from services.trainer.warmstart.config import load_config as load_config
from services.trainer.warmstart.samples import FimSample as FimSample
from services.trainer.warmstart.samples import Samples as Samples
from services.trainer.warmstart.samples import build_samples as build_samples
