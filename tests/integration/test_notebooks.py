"""The notebooks, run from top to end with a tiny budget."""

# nbformat is only partly typed
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TINY = {
    "TABWISE_NOTEBOOK_ROUNDS": "2",
    "TABWISE_NOTEBOOK_HELD_OUT": "6",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


def run(name: str, output: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for variable, value in (TINY | {"TABWISE_NOTEBOOK_OUTPUT": str(output), "IPYTHONDIR": str(output)}).items():
        monkeypatch.setenv(variable, value)
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    client = NotebookClient(notebook, timeout=110, kernel_name="python3", resources={"metadata": {"path": NOTEBOOKS}})
    client.execute()
    if folder := os.environ.get("TABWISE_NOTEBOOK_KEEP"):
        nbformat.write(notebook, Path(folder) / name)
    return notebook


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def plots(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def printed(notebook: Any) -> str:
    return "".join(output.get("text", "") for output in outputs(notebook))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Jupyter's event loop
def test_dataset_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = run("01_dataset_preview.ipynb", tmp_path, monkeypatch)
    assert plots(notebook) == 1
    assert "⟦" in printed(notebook)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_warm_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = run("02_warm_start.ipynb", tmp_path, monkeypatch)
    assert plots(notebook) == 1
    assert "round   2: exact" in printed(notebook)
    assert (tmp_path / "warm-start/final/model.safetensors").is_file()


def test_they_are_committed_without_outputs_and_without_this_machine() -> None:
    names = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    assert names == ["01_dataset_preview.ipynb", "02_warm_start.ipynb"]
    for name in names:
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        nbformat.validate(notebook)
        assert outputs(notebook) == []
        assert "/root" not in str(notebook)
