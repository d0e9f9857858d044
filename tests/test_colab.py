"""The notebook for Colab runs from top to bottom, on a CPU, in an empty folder.

Its first cell of code installs the project, from the network; here that is installed already, and
the cell is replaced by a link to this checkout, where the clone would be.
"""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "colab.ipynb"


def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_kept_without_outputs() -> None:
    read = notebook()
    nbformat.validate(read)
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert "pip install" in code[0].source
    assert not any("install" in cell.source for cell in code[1:])


def said(cell: nbformat.NotebookNode) -> str:
    """What a cell printed, or the kinds of what it shows."""
    return "".join(out.get("text", " ".join(out.get("data", ()))) for out in cell.outputs)


@pytest.mark.slow  # Seconds, for the notebook's kernel.
def test_half_as_many_environments_are_tried_where_they_do_not_fit(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer"
    # The trainer's arguments are: -m hackmatrix train --num-envs N.
    trainer.write_text(
        "#!/bin/sh\n"
        'if [ "$5" -gt 16 ]; then echo "error: RESOURCE_EXHAUSTED: Out of memory" >&2; exit 1; fi\n'
        'echo "trained $5"\n'
    )
    trainer.chmod(0o755)
    read = notebook()
    (train,) = (cell for cell in read.cells if "--num-envs {ENVS}" in cell.source)
    given = "ENVS, SIZE, STEPS, FOLDER = 64, '', 1, 'checkpoints'"
    begin = nbformat.v4.new_code_cell(f"import sys; sys.executable = {str(trainer)!r}; {given}")
    read.cells = [begin, train]
    NotebookClient(read, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = said(train)
    assert printed.count("RESOURCE_EXHAUSTED") == 2
    assert "trying 16 environments" in printed
    assert "trained 16" in printed


@pytest.mark.nightly  # Its commands have tests of their own.
@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU's program to ask: the small numbers, wherever the test runs.
    folders = os.environ["PATH"].split(os.pathsep)
    without = [folder for folder in folders if not (Path(folder) / "nvidia-smi").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(without))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    read = notebook()
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    code[0].source = f"import os; os.symlink({str(ROOT)!r}, 'ppo-mask')"
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(read, timeout=600, resources=resources).execute()
    _, _, size, train, resume, plot, evaluate, watch = map(said, code)
    assert "on a CPU" in size
    assert "finished after 16 updates" in train
    assert "from update 16" in resume
    assert "finished after 24 updates" in resume
    assert "image/png" in plot
    assert re.search(r"return +\S+ \[", evaluate)
    assert "text/html" in watch
    (run,) = (tmp_path / "checkpoints").iterdir()
    assert (run / "checkpoints" / "24").is_dir()
