"""Hooks of the documentation site: the README is its start page, and the reference is generated from the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import reference
from mkdocs.structure.files import File, Files


def on_config(config: Any, **_: Any) -> Any:
    """Make the pages of the reference, and list them in the navigation behind its start page."""
    config.extra["reference"] = pages = {f"reference/{name}": text for name, text in reference.pages().items()}
    section = next(section["Reference"] for section in config.nav if "Reference" in section)
    section.extend(pages)
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """README.md as `index.md`, with its links relative to `docs/`; and the pages of the reference."""
    readme = Path(config.config_file_path).parent / "README.md"
    text = re.sub(r"(\]\()docs/", r"\1", readme.read_text(encoding="utf-8"))
    for name, content in {"index.md": text, **config.extra["reference"]}.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The start page of the reference ends with links to its pages, which only the site has."""
    return markdown + reference.overview() if page.file.src_uri == "reference/index.md" else markdown
