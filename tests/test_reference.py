"""The pages of the site's reference say what the classes say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import script_files

from fgrl import registry

TOOL = Path(__file__).resolve().parents[1] / "tools" / "reference.py"


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as context:
        context.syspath_prepend(TOOL.parent)
        return script_files.loaded(TOOL)


@pytest.fixture(scope="module")
def pages(reference) -> dict[str, str]:
    return reference.pages()


def test_every_component_and_block_is_on_a_page(reference, pages: dict[str, str]) -> None:
    for kind in registry.kinds():
        for name in reference._names(kind):
            assert f"\n## {name}\n" in pages[f"{kind}.md"]
    for block in registry.blocks():
        if block.__module__.startswith("fgrl."):
            assert f"\n## {block.__name__}\n" in pages["blocks.md"]


def test_a_field_is_described_as_its_class_describes_it(pages: dict[str, str]) -> None:
    assert (
        "| `kl_coef` | float, >= 0, <= 100 | `0.01` | Coefficient of the KL (beta in the papers)"
        in pages["online_algorithm.md"]
    )


def test_the_start_page_leads_to_each_page(reference, pages: dict[str, str]) -> None:
    assert set(re.findall(r"\]\((\w+\.md)\)", reference.overview())) == set(pages)


def test_the_python_page_has_what_components_use(pages: dict[str, str]) -> None:
    page = pages["python.md"]
    for entry in (
        "### gae", "### score_with", "### LanguageModel", "### Rollout", "Reward.score(self, rollout: Rollout) -> Rewards",
        "GroupRelative.combine(", "### Drawer", "| `temperature` | `float` |", "### Auxiliary", "### run",
    ):  # fmt: skip
        assert entry in page, entry
    assert "model_post_init" not in page
