"""The pages on papers: what they say can be run has a stage, and what has none says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_recipes import loaded

ROOT = Path(__file__).resolve().parents[2]
MAIN = {
    "rla": "rla_llama3",
    "rubrics_to_tokens": "rtt_qwen3",
    "segment_ppo": "segment_ppo_phi3",
    "span_feedback": "span_chains",
    "text2grad": "text2grad_summarize",
}
PAGES = [ROOT / "docs" / "papers" / f"{name}.md" for name in MAIN]


def stages(page: Path) -> set[str]:
    """Stages of the page's main recipe."""
    return set(loaded(MAIN[page.stem]).stages)


def section(page: Path, title: str) -> str:
    return page.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_paper_has_its_page() -> None:
    assert {page.stem for page in (ROOT / "docs" / "papers").glob("*.md")} == set(MAIN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_cannot_be_run_is_not_called_not_run(page: Path) -> None:
    """ "Not run" would promise that it could be: a table's row names a recipe, a sweep or a stage, or says why there is none."""
    assert not re.search(r"\bnot run\b", page.read_text(encoding="utf-8"))
    for line in section(page, "Recipes").splitlines():
        if re.match(r"\| (\d|Fig)", line):
            last = line.rstrip(" |").split(" | ")[-1]
            named = re.findall(r"`([^`]+)`", last)
            runs = [text for text in named if ".yaml" in text or text.startswith("::") or text in stages(page)]
            runs += [text for text in named if (ROOT / "recipes" / f"{text}.yaml").is_file()]
            assert runs or last.startswith("none: ") or "in the evaluations of every recipe" in last, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_stage_that_a_page_names_is_in_its_recipe(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`stages\.(\w+)", text)) | set(re.findall(r"stages? `(\w+)`", text))
    assert named
    assert named <= stages(page) | {"lm_eval"}, "a stage, or the name of a kind of stage"
