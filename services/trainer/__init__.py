"""Turns experience into checkpoints: claims mini-batches, draws siblings, scores, trains, commits. Torch-free.

In: stream `experience`. Out: checkpoint folders `vNNNNNN/`, tables `training_rounds`, `trained_experience` and
`value_trackers`, the task `publisher.reconcile`. The model itself lives in a child process (`learner/`), spoken to
through `learner_api`.
"""
