"""What a run records about the packages that a user's file imports."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from unittest import mock

import pytest

from fgrl.experiments.pipeline.environment import environment, versions_of_imports
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


def test_a_package_that_is_installed_or_replaced_between_two_runs_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert versions_of_imports(["module_of_another_name"]) == {}
    for version in ("1.0", "2.0"):
        installed = tmp_path / f"a_package-{version}.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: a-package\nVersion: {version}\n")
        (installed / "top_level.txt").write_text("module_of_another_name\n")
        assert versions_of_imports(["module_of_another_name"]) == {"a-package": version}
        shutil.rmtree(installed)
    assert versions_of_imports(["module_of_another_name"]) == {}


def test_the_files_of_all_packages_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = mock.Mock(wraps=metadata.packages_distributions)
    monkeypatch.setattr(metadata, "packages_distributions", listed)
    outside.distributions.cache_clear()
    assert (
        versions_of_imports(["yaml", "not_installed"])
        == versions_of_imports(["yaml"])
        == {"PyYAML": metadata.version("PyYAML")}
    )
    assert listed.call_count == 1
