"""Modules and attributes that are imported at first use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fgrl.base import lazy

PACKAGE = """
from fgrl.base import lazy
__getattr__, __dir__ = lazy.attributes(__name__, {"first": ["a", "b"], "second": ["c"]})
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "lazily"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "first.py").write_text("a, b, hidden = 1, 2, 3\n")
    (folder / "second.py").write_text("raise RuntimeError('the second submodule was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import lazily

    yield lazily
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazily"]:
        del sys.modules[name]


def test_an_attribute_is_imported_from_its_submodule_at_first_use(package) -> None:
    assert "lazily.first" not in sys.modules
    assert (package.a, package.b) == (1, 2)
    assert "lazily.second" not in sys.modules
    with pytest.raises(RuntimeError, match="the second submodule was imported"):
        package.c  # noqa: B018


def test_other_attributes_do_not_exist_and_submodules_can_be_imported(package) -> None:
    assert dir(package) == ["a", "b", "c"]
    with pytest.raises(AttributeError, match=r"module 'lazily' has no attribute 'hidden'"):
        package.hidden  # noqa: B018
    from lazily import first

    assert first.hidden == 3


def test_a_lazy_module_that_is_missing_is_reported_at_first_use() -> None:
    missing = lazy.load("no_such_module_anywhere")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        missing.attribute  # noqa: B018
