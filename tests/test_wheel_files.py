"""The settings of the wheel name every file that an installed fgrl reads."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from import_walk import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
SHARED = "share/fgrl"
"""The folder of an installation in which recipes and what they refer to lie beside each other, as in the source tree."""
INSTALLED = ("recipes", "prompts", "tasks", "fgrl/feedback/taxonomies")
OUTSIDE = re.compile(r"(?:\.\./)+[\w./-]+")
"""A path in a recipe that leads out of its folder."""


def files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)


def not_packaged(names: Sequence[str], patterns: Mapping[str, Sequence[str]]) -> list[str]:
    """Files of the package that are neither Python nor match a pattern of package data."""
    every = [pattern for listed in patterns.values() for pattern in listed]
    return [name for name in names if not name.endswith(".py") and not any(fnmatch(name, each) for each in every)]


def installed(data_files: Mapping[str, Sequence[str]]) -> dict[Path, str]:
    """Every file that the wheel installs beside the package, with its place in the installation."""
    return {
        file: f"{folder}/{file.name}"
        for folder, patterns in data_files.items()
        for pattern in patterns
        for file in ROOT.glob(pattern)
        if file.is_file()
    }


def test_every_file_of_the_benchmark_is_in_the_wheel() -> None:
    """Its lines, and what its recipes import, wherever that lies in the source tree."""
    package, patterns = ROOT / "fgrl_benchmark", SETTINGS["package-data"]
    for folder in [package, *(each for each in package.iterdir() if each.is_dir() and each.name != "__pycache__")]:
        there = [file.name for file in folder.iterdir() if file.is_file() and file.suffix != ".svg"]
        module = ".".join(folder.relative_to(ROOT).parts)
        own = {key: each for key, each in patterns.items() if key in ("*", module)}
        assert folder.name == "methods" or not_packaged(there, own) == [], folder
    imported = [
        package / name.strip()
        for recipe in package.glob("*.yaml")
        for listed in re.findall(r"^imports: \[(.*)\]$", recipe.read_text(), re.MULTILINE)
        for name in listed.split(",")
    ]
    assert len(imported) > 25
    assert [
        file for file in imported if not file.is_file() or (file.parent.parent != package and file.parent != package)
    ] == []


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    package = list(files(ROOT / "fgrl"))
    assert {".j2", ".css", ".html", ".js", ".txt", ".yaml"} <= {file.suffix for file in package}
    assert not_packaged([file.name for file in package], SETTINGS["package-data"]) == []


@pytest.mark.parametrize("folder", INSTALLED)
def test_recipes_and_what_they_refer_to_lie_as_in_the_source_tree(folder: str) -> None:
    places = installed(SETTINGS["data-files"])
    tree = list(files(ROOT / folder))
    assert tree
    assert {file: places.get(file) for file in tree} == {
        file: f"{SHARED}/{file.relative_to(ROOT).as_posix()}" for file in tree
    }


def test_every_path_that_leads_out_of_a_recipes_folder_is_installed() -> None:
    places = installed(SETTINGS["data-files"])
    named = {
        (recipe.parent / path).resolve()
        for recipe in ROOT.glob("recipes/**/*.yaml")
        for path in OUTSIDE.findall(recipe.read_text())
    }
    assert len(named) > 20
    assert [
        path for path in sorted(named) if path not in places and not any(path in file.parents for file in places)
    ] == []


def test_a_forgotten_file_is_noticed() -> None:
    patterns: dict[str, Any] = {"*": ["*.j2", "py.typed"]}
    assert not_packaged(["a.py", "b.j2", "py.typed", "c.svg", "d.j2.bak"], patterns) == ["c.svg", "d.j2.bak"]
    assert set(files(ROOT / "recipes")) - set(installed({"x": ["recipes/*.yaml"]})), "files of recipes/small"
