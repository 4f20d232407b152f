"""Hooks of the documentation site: the README is its start page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """README.md as `index.md`, with its links relative to `docs/`."""
    readme = Path(config.config_file_path).parent / "README.md"
    text = re.sub(r"(\]\()docs/", r"\1", readme.read_text(encoding="utf-8"))
    files.append(File.generated(config, "index.md", content=text))
    return files
