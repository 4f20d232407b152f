"""What a run records about the packages that a user's file imports."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from fgrl.pipeline.environment import environment, versions_of_imports
from fgrl.registry import outside

FILE = """
import json
import parts
import yaml

def score(completions):
    import later, regex.something, not_installed
"""


def test_versions_of_packages_that_imported_files_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_imported", {})
    (tmp_path / "parts.py").write_text("import jinja2\n")
    (tmp_path / "later.py").write_text("from pydantic_core import core_schema\n")
    (tmp_path / "rewards.py").write_text(FILE)
    before = environment(tmp_path / "recipe.yaml")["versions"]
    outside.import_file(tmp_path / "rewards.py")
    assert outside.installed_imports() == {"yaml", "regex", "not_installed", "jinja2", "pydantic_core"}
    now = environment(tmp_path / "recipe.yaml")["versions"]
    new = {
        "PyYAML": metadata.version("PyYAML"),
        "regex": metadata.version("regex"),
        "jinja2": metadata.version("jinja2"),
        "pydantic_core": metadata.version("pydantic_core"),
    }
    assert now == before | new
    assert not new.keys() & before.keys()
    assert versions_of_imports([]) == {}
