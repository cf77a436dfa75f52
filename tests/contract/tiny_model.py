"""A small Qwen2 with random weights and a real byte-level tokenizer, built in seconds: enough for every contract.

Used where `models/tabwise-small` is not wanted or not there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"]
TEXT = [
    "def total(items):\n    result = 0\n    for item in items:\n        result += item.price\n    return result\n",
    "class Order:\n    def __init__(self, name: str) -> None:\n        self.name = name\n        self.lines = []\n",
    "import json\n\n\ndef load(path: Path) -> dict[str, int]:\n    return json.loads(path.read_text())\n",
]


def build(folder: Path, *, seed: int = 0, layers: int = 2, width: int = 64) -> Path:
    """Write model and tokenizer in Hugging Face format; the same seed gives the same weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[0],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    _model(tokenizer.get_vocab_size(), seed, layers, width).save_pretrained(folder)
    return folder


def perturb(source: Path, target: Path, *, scale: float, seed: int = 1) -> Path:
    """A copy of the model with noise on its weights: what a training round would leave behind."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source).save_pretrained(target)
    return target


def logprobs(folder: Path, token_ids: list[int]) -> list[float]:
    """log p(token[t + 1] | token[: t + 1]) as transformers computes it: the learner's side of the probe."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids])).logits[0, :-1].float()
    chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(token_ids[1:]).unsqueeze(1))
    return [float(value) for value in chosen.squeeze(1)]


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _model(vocabulary: int, seed: int, layers: int, width: int) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=0,
        bos_token_id=0,
        dtype=torch.float32,
    )
    make: Any = Qwen2ForCausalLM
    return make(config)
