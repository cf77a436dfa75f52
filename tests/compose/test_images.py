"""What an image's program imports is in the image: our own folders by COPY, everything else by its requirements."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"services", "shared", "migrations"}
IMAGES = ("gateway", "ingest", "engine", "trainer", "publisher")
BY_HAND = {"vllm", "torch"}
"""Installed by name or from a list of its own, or imported only where it is there."""


def _imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, at its top or inside a function, but not for type checkers only."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{name.name}" for name in node.names))
        nodes.extend(ast.iter_child_nodes(node))


def _file(module: str) -> Path | None:
    """The file of a module of ours."""
    base = ROOT / module.replace(".", "/")
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _reachable(image: str) -> tuple[set[Path], set[str]]:
    """Files of ours that the image's programs need, and the top-level names of everything else."""
    waiting = [*(ROOT / "services" / image).rglob("*.py")]
    waiting += (ROOT / "migrations").rglob("*.py") if image == "ingest" else []
    files: set[Path] = set()
    foreign: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files.add(path)
        for name in _imports(path):
            if name.split(".")[0] not in OURS:
                foreign.add(name.split(".")[0])
            elif (found := _file(name)) is not None:
                waiting.append(found)
    return files, foreign - set(sys.stdlib_module_names)


def _required(image: str) -> set[str]:
    """Distributions that pip installs into the image."""
    names = re.findall(r"(?m)^([A-Za-z0-9._-]+)", (ROOT / f"requirements/{image}.txt").read_text())
    return {_normal(name) for name in names}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_every_package_that_its_program_imports(image: str) -> None:
    providers = packages_distributions()
    _, foreign = _reachable(image)
    required = _required(image)
    missing = {name for name in foreign - BY_HAND if not {_normal(p) for p in providers.get(name, [name])} & required}
    assert not missing


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_every_file_of_ours_that_its_program_imports(image: str) -> None:
    dockerfile = (ROOT / f"deploy/docker/{image}.Dockerfile").read_text()
    copied = [ROOT / source for source in re.findall(r"(?m)^COPY (\S+) \S+$", dockerfile)]
    files, _ = _reachable(image)
    assert not {path for path in files if not any(path.is_relative_to(source) for source in copied)}
