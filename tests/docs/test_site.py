"""The site has every page, and its Makefile target builds it without a broken link."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_blocks import ROOT, pages

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in named(item)]


def test_the_navigation_has_every_page_once() -> None:
    in_docs = [page.relative_to(ROOT / "docs").as_posix() for page in pages() if page.name != "README.md"]
    assert sorted(named(CONFIG["nav"])) == sorted([*in_docs, "index.md"])


def anchors_of(text: str) -> set[str]:
    """As GitHub and mkdocs make them of headings; a repeated heading gets a number."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.is_file(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors_of(there.read_text(encoding="utf-8")), f"{target}: no such heading"


def test_pages_of_the_site_link_only_to_the_site() -> None:
    docs = ROOT / "docs"
    for page in (page for page in pages() if page.name != "README.md"):
        for target in re.findall(
            r"\]\(([^)\s#]+)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        ):
            if not target.startswith("http"):
                assert (page.parent / target).resolve().is_relative_to(docs), f"{page}: {target}"


@pytest.mark.docs
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    build = pytest.importorskip("mkdocs.commands.build", reason="needs mkdocs: pip install 'fgrl[docs]'")
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    build.build(config)
    site = tmp_path / "site"
    assert "make quickstart" in (site / "index.html").read_text(encoding="utf-8")
    reference = (site / "reference" / "index.html").read_text(encoding="utf-8")
    assert "fgrl show ppo.kl_coef" in reference, "written by hand"
    assert '<a href="online_algorithm.html">' in reference, "added by tools/site.py"
    assert 'id="gae"' in (site / "reference" / "python.html").read_text(encoding="utf-8")
