"""What services say to one another. Pydantic only: no I/O, no framework, no torch.

generation.Generation        gateway  → stream generations → ingest (recorder)
experience.Experience        ingest   → stream experience  → trainer
checkpoint.Manifest, Probe   learner  → checkpoint folder  → publisher
replicas.ReplicaNotice       publisher → Redis key and channel → gateway
names                        streams, consumer groups, Celery tasks and queues
"""
