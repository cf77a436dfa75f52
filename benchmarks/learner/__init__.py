"""`make bench-learner`: one optimiser step on the same groups, by our learner and by TRL's GRPO trainer.

cases    what is trained: model shape, groups, settings; the same on both sides, made from a seed
ours     our learner's step: packing, DeepSpeed engine, objective
peer     TRL's step: `GRPOTrainer.training_step` and its optimiser
worker   one side of one case in a process of its own: `python -m benchmarks.learner.worker`
memory   peak memory of that process, above what it had once the model was loaded
rate     what share of the device's matrix rate a step reaches
figures  from both sides' measurements to lines of JSON, and whether they computed the same
"""
