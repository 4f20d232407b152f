"""Every pinned version is installable on the lowest Python that the project promises."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOWEST = re.sub(r"^>=(\d+\.\d+)$", r"\1.0", PROJECT["requires-python"])
"""The first release of the lowest Python; packages may ask for a later one."""


def pins() -> Iterator[Requirement]:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Requirement(line)


def refused(python: str) -> list[str]:
    """Return the installed pinned packages that refuse a Python."""
    found = []
    for pin in pins():
        try:
            wanted = metadata.metadata(pin.name).get("Requires-Python")
        except metadata.PackageNotFoundError:
            continue  # it belongs to an extra that is not installed here
        if wanted and not SpecifierSet(wanted).contains(python):
            found.append(f"{pin} requires Python {wanted}")
    return found


def test_pinned_versions_allow_the_lowest_python() -> None:
    assert re.fullmatch(r"\d+\.\d+\.0", LOWEST)
    assert refused(LOWEST) == []


def test_a_package_that_refuses_a_python_is_found() -> None:
    assert any(line.startswith("torch==") for line in refused("3.4.0"))


def test_installed_versions_are_the_pinned_ones() -> None:
    """Otherwise the test above would have looked at other packages than a new machine gets."""
    for pin in pins():
        try:
            version = metadata.version(pin.name)
        except metadata.PackageNotFoundError:
            continue
        assert pin.specifier.contains(version.partition("+")[0], prereleases=True), f"{pin}, installed: {version}"


@pytest.mark.docs
def test_all_pinned_packages_are_installed() -> None:
    """With every extra that `make docs` and `make test` install, none is left unchecked."""
    installed = {canonicalize_name(each.metadata["Name"]) for each in metadata.distributions()}
    assert {canonicalize_name(pin.name) for pin in pins()} <= installed
