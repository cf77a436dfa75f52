"""Names that two services must agree on."""

from __future__ import annotations

from typing import Final

STREAM_GENERATIONS: Final = "tabwise:generations"
"""Produced by the gateway, consumed by ingest's recorder. Payload: `Generation` as JSON."""
STREAM_EXPERIENCE: Final = "tabwise:experience"
"""Produced by ingest's relay, consumed by the trainer. Payload: `Experience` as JSON."""

GROUP_RECORDER: Final = "recorder"
GROUP_TRAINER: Final = "trainer"

QUEUE_TRAINER: Final = "trainer"
QUEUE_PUBLISHER: Final = "publisher"

TASK_TRAIN_ROUND: Final = "trainer.train_round"
"""Claims mini-batches, trains them, commits a checkpoint. No arguments."""
TASK_RECONCILE: Final = "publisher.reconcile"
"""Brings every replica to the newest committed checkpoint. No arguments: it looks at what is there."""

BASE_POLICY_VERSION: Final = 0
"""The model that the engine starts with."""
ENGINE_UNSET_VERSION: Final = "default"
"""What vLLM reports as its weight version before anybody has set one: it still serves the base model."""

MANIFEST_FILE: Final = "manifest.json"
PROBE_FILE: Final = "probe.json"
CHECKPOINT_FOLDER: Final = "v{version:06d}"
"""Folder of a committed checkpoint below the checkpoint root."""
