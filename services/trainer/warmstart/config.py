"""`configs/warmstart.yaml` as one pydantic object. Unknown keys are refused; relative paths start at the file's folder.

In: YAML. Out: `WarmStartConfig`, or a `SettingsError` of one sentence that names the key and what is allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from services.trainer.settings import AdvantageName
from services.trainer.warmstart.config_errors import sentence
from services.trainer.warmstart.grammars import PARSED_LANGUAGES
from services.trainer.warmstart.learner_section import LearnerSection
from services.trainer.warmstart.rewards.mix import RewardSpec
from shared.fim import FAMILIES
from shared.kit.errors import SettingsError

_ROOM_FOR_MARKS = 16
"""Tokens that a prompt template adds, about."""


def _at(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder", Path.cwd())
    return (Path(folder) / path.expanduser()).resolve()


def _location(text: str, info: ValidationInfo) -> str:
    """A folder that exists becomes absolute; a URL, or a name on the Hub, stays."""
    folder = _at(Path(text), info)
    return str(folder) if folder.exists() else text


def _known_family(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(f"there is no model family {name!r}; known are {', '.join(FAMILIES)}")
    return name


PathHere = Annotated[Path, AfterValidator(_at)]
Location = Annotated[str, AfterValidator(_location)]


class Section(BaseModel):
    """Nothing unknown, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(Section):
    """Which column of a data set holds what."""

    text: str = "content"
    path: str | None = "path"
    repo: str | None = None
    licence: str | None = None
    """A name, or a list of names that all apply."""
    language: str | None = None
    generated: str | None = None
    """True where the data set's makers found that nobody wrote the file."""


class _Files(Section):
    include: list[str] = ["*"]
    """Patterns of paths; `*` also matches `/`."""
    exclude: list[str] = []


class FolderSource(_Files):
    """All files below a folder; hidden and vendored folders, and links, are not looked at."""

    kind: Literal["folder"]
    path: PathHere


class GitSource(_Files):
    """The files of one commit."""

    kind: Literal["git"]
    repository: Location
    """A local repository, or a URL, which is cloned into `output`/git once and fetched again later."""
    revision: str = "HEAD"
    """A commit, branch or tag."""


class JsonlSource(Section):
    """One JSON object a line, also packed with gzip (`.gz`)."""

    kind: Literal["jsonl"]
    path: PathHere
    columns: Columns = Columns()


class DatasetSource(Section):
    """A data set of the Hugging Face Hub, or local files through the same library (`name: parquet` or `json`)."""

    kind: Literal["dataset"]
    name: str
    subset: str | None = None
    """The data set's configuration, where it has several."""
    data_dir: str | None = None
    """A folder within it, such as `data/python`."""
    data_files: list[PathHere] | None = None
    split: str = "train"
    revision: str | None = None
    limit: int = Field(default=10_000, ge=1)
    """Rows that are read: the data set is streamed, the rest is never downloaded."""
    columns: Columns | None = None
    """None: known for `codeparrot/codeparrot-clean` and `bigcode/the-stack-smol`, else `Columns`' defaults."""


Source = Annotated[FolderSource | GitSource | JsonlSource | DatasetSource, Field(discriminator="kind")]


class Licences(Section):
    """Whose code may be learned from."""

    allow: list[str] | None = None
    """SPDX names, in any case; None: any."""
    unknown: Literal["keep", "drop"] = "keep"
    """What becomes of files without a licence that can be told. Only where `allow` is set."""


class Filters(Section):
    """Which files are good to learn from."""

    languages: list[str] | None = list(PARSED_LANGUAGES)
    """None: all text."""
    licences: Licences = Licences()
    min_chars: int = Field(default=64, ge=1)
    max_chars: int = Field(default=200_000, ge=1)
    max_line_chars: int = Field(default=1000, ge=1)
    max_mean_line_chars: int = Field(default=100, ge=1)
    """Longer lines are a mark of minified files and of data."""
    generated: Literal["keep", "drop"] = "drop"
    near_duplicates: float | None = Field(default=0.85, gt=0, lt=1)
    """Share of equal word 5-grams (Jaccard) from which on two files count as one; None: equal files only."""


class Split(Section):
    """Which files are held out."""

    test_share: float = Field(default=0.1, gt=0, lt=1)
    by: Literal["path", "content"] = "path"
    """What decides: a file keeps its side when it is edited (`path`), or when it is moved (`content`)."""


class Holes(Section):
    """What is cut out of a file. Weights of the kinds; a kind that a file has none of is left out there."""

    rest_of_line: float = Field(default=4.0, ge=0)
    expression: float = Field(default=2.0, ge=0)
    statement: float = Field(default=2.0, ge=0)
    block: float = Field(default=1.0, ge=0)
    function_body: float = Field(default=1.0, ge=0)
    per_file: int = Field(default=4, ge=1)
    min_chars: int = Field(default=3, ge=1)
    max_lines: int = Field(default=12, ge=1)

    @property
    def weights(self) -> dict[str, float]:
        """By kind."""
        kinds = ("rest_of_line", "expression", "statement", "block", "function_body")
        return {kind: getattr(self, kind) for kind in kinds}

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not any(self.weights.values()):
            raise ValueError(f"one of the weights must be above 0: {', '.join(self.weights)}")
        return self


class Prompts(Section):
    """How a sample is asked for."""

    family: Annotated[str, AfterValidator(_known_family)] = "qwen"
    prefix_tokens: int = Field(default=384, ge=1)
    suffix_tokens: int = Field(default=128, ge=1)
    max_train: int | None = Field(default=None, ge=1)
    max_test: int | None = Field(default=None, ge=1)


class Training(Section):
    """The loop."""

    rounds: int = Field(default=50, ge=1)
    """One checkpoint each."""
    prompts_per_round: int = Field(default=16, ge=1)
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps that a round's prompts are divided into."""
    group_size: int = Field(default=8, ge=2)
    """Completions of each prompt."""
    temperature: float = Field(default=0.8, gt=0)
    max_completion_tokens: int = Field(default=64, ge=1)
    advantage: AdvantageName = "rloo"
    keep_checkpoints: int = Field(default=2, ge=1)
    tracker_decay: float = Field(default=0.98, gt=0, le=1)


class Evaluation(Section):
    """Held-out samples, at the start, every so often, and at the end."""

    every: int = Field(default=10, ge=1)
    """Rounds."""
    samples: int = Field(default=128, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    """0: the likeliest token each time."""


class WarmStartConfig(Section):
    """All of it. `load_config` reads one; made in Python, relative paths start at the working directory."""

    model: Location
    """The model to start from: a folder, or a name on the Hugging Face Hub."""
    output: PathHere
    """Checkpoints, logs, the samples and the result."""
    seed: int = Field(default=0, ge=0)
    sources: list[Source] = Field(min_length=1)
    filters: Filters = Filters()
    split: Split = Split()
    holes: Holes = Holes()
    prompts: Prompts = Prompts()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    rewards: list[RewardSpec] = Field(min_length=1)
    learner: LearnerSection = LearnerSection()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needed = self.prompts.prefix_tokens + self.prompts.suffix_tokens + self.training.max_completion_tokens
        if needed + _ROOM_FOR_MARKS > self.learner.settings().max_row_tokens:
            raise ValueError(
                f"learner.max_row_tokens: must be at least {needed + _ROOM_FOR_MARKS} for prompts.prefix_tokens + "
                "prompts.suffix_tokens + training.max_completion_tokens"
            )
        if self.training.minibatches > self.training.prompts_per_round:
            raise ValueError("training.minibatches: must not be more than training.prompts_per_round")
        return self


def load_config(path: Path) -> WarmStartConfig:
    """Read and check a YAML file. Raises `SettingsError`."""
    try:
        data: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"--config: {path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: must hold keys and values, such as `model: …`")
    try:
        return WarmStartConfig.model_validate(data, context={"folder": path.resolve().parent})
    except ValidationError as error:
        raise SettingsError(f"{path}: {sentence(error, WarmStartConfig)}") from None
