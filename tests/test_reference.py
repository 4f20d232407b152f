"""docs/reference/ is generated from the classes, and is current."""

from __future__ import annotations

from pathlib import Path

import pytest
import script_files

from fgrl import registry

TOOL = Path(__file__).resolve().parents[1] / "tools" / "reference.py"


@pytest.fixture(scope="module")
def reference():
    return script_files.loaded(TOOL)


def test_the_committed_pages_are_current(reference) -> None:
    assert reference.stale() == [], "run `python tools/reference.py` and commit docs/reference"


def test_a_page_that_says_something_else_is_stale(reference, tmp_path: Path) -> None:
    for name, text in reference.pages().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert reference.stale(tmp_path) == []
    (tmp_path / "engine.md").write_text("# engine\n", encoding="utf-8")
    (tmp_path / "gone.md").write_text("# gone\n", encoding="utf-8")
    (tmp_path / "reward.md").unlink()
    assert reference.stale(tmp_path) == ["engine.md", "gone.md", "reward.md"]


def test_every_component_and_block_is_on_a_page(reference) -> None:
    pages = reference.pages()
    for kind in registry.kinds():
        for name in reference._names(kind):
            assert f"\n## {name}\n" in pages[f"{kind}.md"]
    for block in registry.blocks():
        if block.__module__.startswith("fgrl."):
            assert f"\n## {block.__name__}\n" in pages["blocks.md"]


def test_the_python_page_has_what_components_use(reference) -> None:
    page = reference.pages()["python.md"]
    for entry in (
        "### gae", "### score_with", "### LanguageModel", "### Rollout", "Reward.score(self, rollout: Rollout) -> Rewards",
        "GroupRelative.combine(", "### Drawer", "| `temperature` | `float` |", "### Auxiliary", "### run",
    ):  # fmt: skip
        assert entry in page, entry
    assert "model_post_init" not in page
