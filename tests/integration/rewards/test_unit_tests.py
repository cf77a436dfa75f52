"""A small project with tests, and completions that are right, wrong, hostile, or cheat."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.trainer.warmstart.rewards.mix import RewardMix, RewardSpec
from services.trainer.warmstart.rewards.protocol import Candidate
from services.trainer.warmstart.rewards.sandbox import isolation_problem
from services.trainer.warmstart.rewards.unit_tests import UnitTests, passed_tests
from shared.kit.errors import SettingsError

NEEDS = {
    "require_isolation": isolation_problem() is None,
    "environment": {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # twice as fast
}
PREFIX, SUFFIX = '"""Sums."""\n\n\ndef add(a, b):\n    return ', "\n"
TESTS = """
from pkg.sums import add

def test_one():
    assert add(1, 2) == 3

def test_two():
    assert add(0, 0) == 0
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "sums.py").write_text(PREFIX + "a + b" + SUFFIX)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sums.py").write_text(TESTS)
    return tmp_path


def of(completion: str, **changes: str) -> Candidate:
    fields = {"reference": "a + b", "language": "python", "path": "pkg/sums.py"} | changes
    return Candidate(prompt_prefix=PREFIX, prompt_suffix=SUFFIX, completion=completion, **fields)


async def test_right_wrong_broken_and_cheating(project: Path) -> None:
    reward = UnitTests({"project": str(project), **NEEDS})
    completions = {
        "a + b": 1.0,
        "b + a": 1.0,
        "a - b": 0.0,
        "a +": 0.0,
        "a + b\n\nimport os\nos._exit(0)": 0.0,
        "a + b\n\nimport pytest\npytest.skip('later', allow_module_level=True)": 0.0,
        "0\n\nimport pytest\npytest.exit('done', returncode=0)": 0.0,
    }
    assert dict(zip(completions, await reward([of(text) for text in completions]), strict=True)) == completions
    assert (project / "pkg" / "sums.py").read_text() == PREFIX + "a + b" + SUFFIX
    assert not list(project.rglob("__pycache__"))


async def test_where_nothing_can_be_told(project: Path) -> None:
    asked = [
        of("a + b", path="pkg/untested.py"),
        of("a + b", language="rust"),
        of("a + b", path="../sums.py"),
        of("a + b", path="/pkg/sums.py"),
        of("a + b", path=""),
        of("a + b", reference="a * b"),
    ]
    assert await UnitTests({"project": str(project), **NEEDS})(asked) == [None] * len(asked)


async def test_what_failing_tests_said_is_printed_only_if_asked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"project": str(project), **NEEDS}
    assert await UnitTests(options)([of("a + b", reference="a * b")]) == [None]
    assert "assert 2 == 3" not in capsys.readouterr().err
    assert await UnitTests({**options, "show_output": True})([of("a + b", reference="a * b")]) == [None]
    assert "assert 2 == 3" in capsys.readouterr().err


async def test_a_command_of_ones_own_is_judged_by_its_status(project: Path) -> None:
    """Each equal file once, the reference once for all calls."""
    runs = {"tests": "tests", "command": ["sh", "-c", "grep -q 'a + b' {path} && test -d {folder}"]}
    reward = UnitTests({"project": str(project), "languages": [], **runs, **NEEDS})
    asked = [of("a + b", language="c"), of("b + a", language="c"), of("a + b + 0", language="c")]
    assert await reward(asked) == [1.0, 0.0, 1.0]
    assert await reward(asked[1:]) == [0.0, 1.0]


async def test_it_is_one_of_a_mix(project: Path) -> None:
    spec = RewardSpec(name="unit_tests", options={"project": str(project), "limits": {"timeout_s": 20}, **NEEDS})
    mix = RewardMix.of([spec, RewardSpec(name="exact_match")])
    assert await mix([of("a + b"), of("b + a")]) == [2.0, 1.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r"rewards\[0\].options.project: Field required"),
        ({"project": "/no/such"}, r"rewards\[0\].options.project: there is no such folder"),
        ({"project": ".", "limits": {"timeout_s": 0}}, r"rewards\[0\].options.limits.timeout_s: Input should be great"),
        ({"project": ".", "command": []}, r"rewards\[0\].options.command: Tuple should have at least 1 item"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        RewardMix.of([RewardSpec(name="unit_tests", options=options)])


def test_a_report_is_read_with_care() -> None:
    case = '<testcase classname="t" name="{}">{}</testcase>'
    report = f"<testsuites><testsuite>{case.format('a', '')}{case.format('b', '<failure/>')}</testsuite></testsuites>"
    assert passed_tests(report) == frozenset({"t.a"})
    bomb = '<!DOCTYPE l [<!ENTITY a "aa">' + "".join(
        f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)
    ).replace("&a0;", "&a;")
    for wrong in (None, "", "<testsuites", "<testsuites/>", f"{bomb}]><testsuites>&a11;</testsuites>"):
        assert passed_tests(wrong) is None
