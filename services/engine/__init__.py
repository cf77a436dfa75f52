"""The engine: vLLM's OpenAI server, started by us so that every answer names the weights that sampled it.

In: completion requests from the gateway and the trainer, admin requests (pause, reload, resume) from the publisher.
Out: token streams with ids, logprobs and a `weight_version`. Start: `python -m services.engine`.
"""
