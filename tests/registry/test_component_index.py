"""The index of components, and that a recipe imports no other files than those that it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import script_files
from patience import HUNG
from scratch_registry import scratch

from fgrl import registry
from fgrl.components import INDEX
from fgrl.kinds import Segmenter

ROOT = Path(__file__).resolve().parents[2]
LOADED = """
import json, sys
from fgrl.experiments import recipe
recipe.load(sys.argv[1])
print(json.dumps(sorted(name for name in sys.modules if name.startswith("fgrl.components."))))
"""


def test_the_index_is_current() -> None:
    tool = script_files.loaded(ROOT / "tools" / "component_index.py")
    assert INDEX.read_text(encoding="utf-8") == tool.index(), (
        "run `python tools/component_index.py` and commit the index"
    )


def test_a_recipe_imports_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("rivers\n", encoding="utf-8")
    recipe = tmp_path / "r.yaml"
    stage = "{name: sample, prompts: {name: lines, path: topics.txt}, model: hub/model, sampling: {max_new_tokens: 8}}"
    recipe.write_text(f"about: x\nstages: {{answers: {stage}}}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(recipe)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = [name for name in json.loads(done.stdout) if name.count(".") == 3]
    assert files == ["fgrl.components.engines.hf", "fgrl.components.readers.lines"]


def test_a_name_of_the_index_is_taken_before_its_file_is_imported() -> None:
    with scratch():
        registry.announce({"segmenter": {"early": ["early_segmenters_for_test", "Early."]}})
        assert "early" in registry.names("segmenter")
        assert registry.about("segmenter", "early") == "Early."
        with pytest.raises(ModuleNotFoundError, match="early_segmenters_for_test"):
            registry.get("segmenter", "early")

        class Mine(Segmenter):
            """Mine."""

            def starts(self, view): ...  # type: ignore[no-untyped-def]

        with pytest.raises(ValueError, match='the name "bandit" of kind segmenter is taken by Bandit'):
            registry.register("bandit")(Mine)
