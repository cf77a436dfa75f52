"""The base model's tokenizer: byte-level BPE with Qwen's special tokens, trained on the generated house codebase.

Digits are tokens of their own; an indentation is one token (the last space goes with the word after it, as in GPT-2).
The cursor splits a word wherever it stands, so prompts hold pieces of words too: the training data has the same
splits, for it is made from whole prompts.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from clients.developer.prompts import END_OF_TEXT, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX

SPECIAL = (
    END_OF_TEXT,
    FIM_PREFIX,
    FIM_MIDDLE,
    FIM_SUFFIX,
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
)


def train_tokenizer(sources: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most ``vocab_size`` tokens, the special ones included."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(sources, trainer)
    return _wrap(bpe)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in a model folder."""
    return _wrap(Tokenizer.from_file(str(folder / "tokenizer.json")))


def _wrap(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        additional_special_tokens=list(SPECIAL[1:]),
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
