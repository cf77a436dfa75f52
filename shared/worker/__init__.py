"""What the Celery services have alike: checks before the start, the clock inside the worker, the tasks it repeats."""
