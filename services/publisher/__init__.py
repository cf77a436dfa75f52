"""The publisher: committed checkpoint → stored → loaded on each replica → verified → live, or rolled back.

In: rows of `training_rounds` and the folders they name (the trainer's), operators' pins. Out: the storage, the serving
folder, vLLM's admin routes, the tables `checkpoints`, `deployments` and `policy_pins` (it is their only writer).

settings     what can be changed              replicas     vLLM's admin routes of one replica
repository   every query                      rollout      what to do now: bring replicas to the wanted version
upload       folder → storage → serving       loading      pause, load, resume, verify one replica, or go back
probe        do these logprobs match?         tasks, celery_app, runtime   the worker around it
"""
