"""The reward `unit_tests`: 1 where the project's tests pass with the completion in place, run in a sandbox.

The tests are run with the reference first (once per place): where they fail even so, or there are none, nothing is
known. Sampled code is run as it comes and could cheat: whoever ends the process early or skips tests gets 0, because
pytest's report must show every test passed that passes with the reference; whoever forges that report gets 1.
"""

from __future__ import annotations

import secrets
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import structlog
from pydantic import Field, field_validator

from services.trainer.warmstart.rewards.options import Options
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.rewards.sandbox import Limits, Outcome, Run, Sandbox
from services.trainer.warmstart.rewards.together import together

log = structlog.get_logger()

_PYTEST: Final = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={report}", "{tests}")
_REMEMBERED = 1024


class _File(NamedTuple):
    """Of the project."""

    path: str
    content: str


class UnitTestsOptions(Options):
    """Of `unit_tests`. In `command` and `tests`: `{python}`, `{tests}`, `{report}`, `{path}`, `{stem}`, `{folder}`."""

    project: Path
    """Folder that candidates' paths are relative to; each run works on a copy."""
    tests: str = "tests/test_{stem}.py"
    """What to run, in the project; of a file for which it doesn't exist nothing is known."""
    command: tuple[str, ...] = Field(default=_PYTEST, min_length=1)
    """With `{report}` in it, a JUnit report is expected there, and read; without, the exit status alone counts."""
    languages: tuple[str, ...] = ("python",)
    """Of others nothing is known; empty: any."""
    python: str = sys.executable
    left_out: tuple[str, ...] = (".git", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache")
    """Names that are not copied."""
    readable: tuple[str, ...] = ()
    """Paths outside of the project that the tests read, such as another Python's folder."""
    environment: dict[str, str] = Field(default_factory=dict)
    limits: Limits = Limits()
    require_isolation: bool = True
    """False: where the kernel gives no namespaces, run with limits alone: with network and file access."""
    concurrency: int = Field(default=2, ge=1, le=256)
    show_output: bool = False
    """Print what tests said that fail with the reference. It may hold code."""

    @field_validator("project")
    @classmethod
    def _there(cls, value: Path) -> Path:
        if not value.is_dir():
            raise ValueError("there is no such folder")
        return value.resolve()


Passed = frozenset[str]
"""Names of passed tests; empty where the command writes no report."""


class UnitTests:
    """1 or 0; None where the reference fails as well, without tests, and for other languages."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = UnitTestsOptions.model_validate(options)
        self._sandbox = Sandbox(self._options.limits, require_isolation=self._options.require_isolation)
        self._references: OrderedDict[_File, Passed | None] = OrderedDict()
        log.info("unit tests sandboxed", isolation=self._sandbox.isolation)

    async def __call__(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """See `Reward`. Equal files are tested once, references once for all calls."""
        wanted = await self._wanted([c for c in candidates if self._testable(c)])
        sound = [c for c in candidates if wanted.get(_reference(c)) is not None]
        passed = await self._try({file for c in sound if (file := _completed(c)) not in wanted})
        results = {**wanted, **{file: self._passed(outcome) for file, outcome in passed.items()}}
        return [_value(results.get(_reference(c)), results.get(_completed(c))) for c in candidates]

    async def _wanted(self, candidates: Sequence[Candidate]) -> dict[_File, Passed | None]:
        """What passes with the references."""
        references = {_reference(c) for c in candidates}
        for file, outcome in (await self._try(references - self._references.keys())).items():
            self._references[file] = self._passed(outcome)
            if self._references[file] is None:
                self._complain(file, outcome)
        wanted = {file: self._references[file] for file in references}
        while len(self._references) > _REMEMBERED:
            self._references.popitem(last=False)
        return wanted

    def _complain(self, file: _File, outcome: Outcome) -> None:
        log.warning("tests fail with the reference", path=file.path, ended=outcome.ended, status=outcome.status)
        if self._options.show_output:
            print(outcome.output, file=sys.stderr)

    async def _try(self, files: Iterable[_File]) -> dict[_File, Outcome]:
        """Run the tests of each, a few at once."""
        asked = list(files)
        outcomes = await together((self._sandbox.run(self._run(file)) for file in asked), self._options.concurrency)
        return dict(zip(asked, outcomes, strict=True))

    def _testable(self, candidate: Candidate) -> bool:
        path, languages = PurePosixPath(candidate.path), self._options.languages
        if path.is_absolute() or ".." in path.parts or not path.name:
            return False
        if languages and candidate.language.lower() not in languages:
            return False
        return (self._options.project / self._filled(self._options.tests, candidate.path, "")).exists()

    def _run(self, file: _File) -> Run:
        options, report = self._options, f".report-{secrets.token_hex(8)}.xml"
        return Run(
            command=[self._filled(word, file.path, report) for word in options.command],
            files={file.path: file.content},
            project=str(options.project),
            left_out=options.left_out,
            readable=options.readable,
            environment=options.environment,
            report=report,
        )

    def _passed(self, outcome: Outcome) -> Passed | None:
        """Tests that passed; None where the command failed."""
        if (outcome.ended, outcome.status) != ("exit", 0):
            return None
        if not any("{report}" in word for word in self._options.command):
            return frozenset()
        return passed_tests(outcome.report)

    def _filled(self, word: str, path: str, report: str) -> str:
        file = PurePosixPath(path)
        values = {"{path}": path, "{stem}": file.stem, "{folder}": str(file.parent), "{report}": report}
        values |= {"{python}": self._options.python}
        if "{tests}" in word:
            word = word.replace("{tests}", self._filled(self._options.tests, path, report))
        for name, value in values.items():
            word = word.replace(name, value)
        return word


def _reference(candidate: Candidate) -> _File:
    return _File(candidate.path, candidate.reference_file)


def _completed(candidate: Candidate) -> _File:
    return _File(candidate.path, candidate.file)


def _value(wanted: Passed | None, passed: Passed | None) -> float | None:
    return None if wanted is None else float(passed is not None and passed >= wanted)


def passed_tests(report: str | None) -> Passed | None:
    """Names of the passed tests of a JUnit report; None where it isn't one, or nothing passed. Pure."""
    try:
        cases = list(ElementTree.fromstring(report or "").iter("testcase"))
    except ElementTree.ParseError:
        return None
    passed = [case for case in cases if all(case.find(bad) is None for bad in ("failure", "error", "skipped"))]
    return frozenset(f"{case.get('classname')}.{case.get('name')}" for case in passed) or None
