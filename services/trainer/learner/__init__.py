"""The learner: one process (or one per accelerator) that holds the policy and takes GRPO steps with DeepSpeed.

In: `TrainRequest`s and `SampleRequest`s over one socket. Out: `StepDone`, `RoundDone`, `Sampled`, `RoundFailed`, and
checkpoint folders on disk.
Whom it serves: the Celery trainer, which starts it, feeds it, and alone decides which checkpoint is committed.

__main__     settings from the environment, ranks joined, then `serve`
serve        the connection: rank 0 talks, the other ranks follow
rounds       one request: right base in memory, mini-batches, checkpoint
packing      groups → lanes `[prompt | y1 | … | yG]` → micro-batches; pure, torch-free
attention    who sees whom in them: three kinds, by setting and device; attention_prefix, attention_flex,
             attention_function
batch        a micro-batch as tensors
model        Hugging Face model → logprobs of the credited tokens, and of nothing else
head         hidden states → logprobs, in chunks
loss         the objective: a surrogate, put together with the three below by name; formulas with their sources
importance   weights that correct for who sampled the tokens
kl           estimates of the KL to the reference
aggregation  from the loss of tokens to that of a mini-batch
sequences    which sample a token belongs to
reference    the policy that the KL term holds on to
figures      what is measured of a step
sampling     completions from the policy in memory; decoding: its forward passes, each prompt run once
adapter      LoRA: in the model, merged on disk
engine       DeepSpeed: configuration, backward, step, skip
checkpoint   folder on disk: write, verify, load
probe        the fixed sequence whose logprobs the publisher checks
tracking     figures for TensorBoard, Weights & Biases and MLflow
ranks        torch.distributed
errors       one line for a reply or a log
This package alone (with services.engine) may import torch; importing `services.trainer.learner` itself does not.
"""
