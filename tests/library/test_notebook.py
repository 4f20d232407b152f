"""The notebook of the docs runs from its first cell to its last, and its committed outputs are those of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'fgrl[dev]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'fgrl[dev]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install 'fgrl[dev]'")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first-experiment.ipynb"
MODEL = "smollm2-135m-instruct"


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_every_cell_runs(notebook: Any, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny model in place of the packaged one."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(MODEL in cell.source for cell in cells) == 1
    for cell in cells:
        cell.source = cell.source.replace(MODEL, str(tiny_model_dir))
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    html = [
        output.data["text/html"] for cell in cells for output in cell.outputs if "text/html" in output.get("data", {})
    ]
    drawn = [each for each in html if "fgrl-tokens" in each]
    assert len(drawn) == 3
    assert "reward −1 · 1 poor" in drawn[0]
    assert len(html) >= 6
    assert (tmp_path / "runs" / "first").is_dir()


def test_the_committed_outputs_are_of_a_whole_run_and_free_of_this_machine(notebook: Any) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"execute_result", "display_data", "stream"}
    assert (
        sum("fgrl-tokens" in output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs)
        == 3
    )
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r"/(home|tmp|root|work|usr|Users|var)/", text)
    assert not [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
