"""Experiment tracking: the learner's figures for TensorBoard, Weights & Biases and MLflow. Figures only, never code.

In: `StepDone`, `RoundDone` and the trainer's own scalars, on rank 0. Out: the same names and values in each tracker.

run             opens the chosen ones; what `rounds` talks to
scalars         what is drawn of a step and of a round, and under which name; pure
tracker         the one protocol
background      a tracker in a thread of its own: it may fail or be slow, training doesn't notice
to_tensorboard, to_wandb, to_mlflow
"""
