"""The files, recipe rows and modules that the documentation mentions exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from doc_blocks import pages

from fgrl.base import ops
from fgrl.experiments.recipe import rows

ROOT = Path(__file__).resolve().parents[1]
PAGES = pages()
ELSEWHERE = ("utils/add_markdown_info.py",)
"""Files of other projects."""

SOURCE = r"(?<![\w/.])(?:\w+/)+\w+\.py\b"
RECIPE = r"(?<!data/)\b(?:sweeps/)?(?:segment_ppo|rla|rtt|quickstart)\w*\.yaml(?:::\w+\*?)?"
MODULE = r"\bfgrl(?:\.\w+)+"


def mentioned(pattern: str) -> list[tuple[str, str]]:
    """The pages that contain text of this pattern, and the text."""
    return sorted(
        {
            (str(page.relative_to(ROOT)), text)
            for page in PAGES
            for text in re.findall(pattern, page.read_text(encoding="utf-8"))
        }
    )


def test_the_patterns_find_what_the_pages_mention() -> None:
    assert all(len(mentioned(pattern)) > 10 for pattern in (SOURCE, RECIPE, MODULE))


@pytest.mark.parametrize(("page", "path"), mentioned(SOURCE))
def test_a_source_file_exists(page: str, path: str) -> None:
    assert path in ELSEWHERE or (ROOT / path).is_file() or (ROOT / "fgrl" / path).is_file(), f"{page} mentions {path}"


@pytest.mark.parametrize(("page", "path"), mentioned(r"(?<![\w/.])(?:prompts|sweeps|recipes|benchmarks)/[\w/]+\.\w+"))
def test_a_file_that_comes_with_recipes_exists(page: str, path: str) -> None:
    assert (ROOT / path).is_file(), f"{page} mentions {path}"


@pytest.mark.parametrize(("page", "recipe"), mentioned(RECIPE))
def test_a_recipe_and_its_row_exist(page: str, recipe: str) -> None:
    name, _, row = recipe.replace("rtt_B", "rtt_qwen3").partition("::")  # the page has one name for three backbones
    files = [path for folder in ("", "recipes", "recipes/small") if (path := ROOT / folder / name).is_file()]
    assert files, f"{page} mentions {recipe}"
    assert not row or any(fnmatchcase(known, row) for file in files for known in rows(file)), (
        f"{page} mentions {recipe}"
    )


@pytest.mark.parametrize(("page", "name"), mentioned(r"`ops\.(\w+)"))
def test_an_operation_exists(page: str, name: str) -> None:
    assert hasattr(ops, name), f"{page} mentions ops.{name}"


@pytest.mark.parametrize(("page", "name"), mentioned(MODULE))
def test_a_module_or_its_attribute_exists(page: str, name: str) -> None:
    if name in ("fgrl.json", "fgrl.components") or (ROOT / name).is_file():
        return
    parent, _, last = name.rpartition(".")
    if importlib.util.find_spec(parent) is None:
        parent, _, owner = parent.rpartition(".")
        assert hasattr(getattr(importlib.import_module(parent), owner), last), f"{page} mentions {name}"
        return
    module = importlib.import_module(parent)
    assert hasattr(module, last) or importlib.util.find_spec(name) is not None, f"{page} mentions {name}"


def test_the_trace_lists_each_file_once() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    trace = page[page.index("## From a recipe") :]
    files = re.findall(r"^\| `([a-z_/]+\.py)`", trace, re.MULTILINE)
    assert len(files) > 20
    assert sorted({file for file in files if files.count(file) > 1}) == []
