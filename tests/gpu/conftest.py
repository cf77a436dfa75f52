"""Tests that need a GPU: `pytest -m gpu tests/gpu`. Without one they are skipped, and say so."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder has the marker `gpu`."""
    skip = pytest.mark.skip(reason="needs a GPU: torch.cuda.is_available() is false")
    for item in items:
        if "tests/gpu/" in item.nodeid:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(skip)
