"""What counts for a cache key of components that a notebook or a script defines."""

from __future__ import annotations

import linecache
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from scratch_registry import scratch

from fgrl import registry
from fgrl.errors import UsageError
from fgrl.kinds import Segmenter
from fgrl.registry import definitions

CELL = """
    import re
    from fgrl.kinds import Segmenter

    WORD = re.compile("a+")
    LIMITS = {"low": 1, "high": [2, 3]}

    def helper(text):
        return limited(len(text))

    def limited(count):
        return min(count, LIMITS["low"])

    def unrelated():
        return 1

    class Mine(Segmenter):
        '''Mine.'''

        n: int = 3
        '''A number.'''

        def starts(self, view):
            # a comment
            unused = [text for text in view.texts]
            return WORD.findall(helper(view))
"""
count = 0


@pytest.fixture(autouse=True)
def main(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A `__main__` without a file, as that of a notebook."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    with scratch():
        yield module


def run_cell(main: ModuleType, source: str) -> None:
    """Run a cell as IPython does: its lines are known to `linecache` under a name that is no file."""
    global count
    count += 1
    text, name = textwrap.dedent(source), f"/tmp/ipykernel_1/{count}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def digest(main: ModuleType, source: str = CELL, name: str = "Mine") -> str:
    run_cell(main, source)
    return definitions.digests([getattr(main, name)])[f"__main__.{name}"]


def test_what_the_component_uses_counts_and_nothing_else(main: ModuleType) -> None:
    first = digest(main)
    for same in (
        CELL.replace("return 1", "return 2"),
        CELL.replace("# a comment", "# another one"),
        f"{CELL}\n    print_nothing = 1\n",
        CELL.replace("WORD =", "\n\n    WORD ="),
    ):
        assert digest(main, same) == first
    for changed in (
        CELL.replace("n: int = 3", "n: int = 4"),
        CELL.replace('"a+"', '"b+"'),
        CELL.replace('"low": 1', '"low": 2'),
        CELL.replace("min(count", "max(count"),
        CELL.replace("limited(len(text))", "limited(len(text)) + 1"),
    ):
        assert changed != CELL
        assert digest(main, changed) != first


def test_a_value_of_another_cell_counts_as_it_is_when_it_is_asked_for(main: ModuleType) -> None:
    first = digest(main)
    run_cell(main, "LIMITS['low'] = 7")
    assert definitions.digests([main.Mine])["__main__.Mine"] != first


def test_base_classes_and_classes_without_functions(main: ModuleType) -> None:
    source = """
        from enum import Enum

        class Side(Enum):
            LEFT = 1

        class Wrong(ValueError):
            pass

        class Yours(Mine):
            '''Yours.'''

            def starts(self, view):
                if view is None:
                    raise Wrong(Side.LEFT)
                return super().starts(view)
    """
    run_cell(main, CELL)
    run_cell(main, source)
    before = definitions.digests([main.Yours])
    assert set(before) == {"__main__.Yours", "__main__.Mine"}
    assert digest(main, source.replace("LEFT = 1", "LEFT = 2"), "Yours") != before["__main__.Yours"]
    run_cell(main, CELL.replace("min(count", "max(count"))
    run_cell(main, source)
    after = definitions.digests([main.Yours])
    assert after["__main__.Mine"] != before["__main__.Mine"]


def test_a_value_that_cannot_be_compared_is_refused(main: ModuleType) -> None:
    run_cell(main, "class Model: pass\nMODEL = Model()")
    changed = CELL.replace("WORD.findall(helper(view))", "MODEL")
    with pytest.raises(UsageError, match="Mine reads the variable MODEL, a Model, whose content cannot be part"):
        digest(main, changed)


def test_source_that_is_not_known_is_refused(main: ModuleType) -> None:
    exec(compile(textwrap.dedent(CELL), "<string>", "exec", dont_inherit=True), main.__dict__)
    with pytest.raises(UsageError, match="the source of Mine is not known"):
        definitions.digests([main.Mine])


def test_a_module_of_the_user_counts_as_a_whole(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_segments_for_test.py"
    source = (
        "from fgrl.kinds import Segmenter\n\nclass Own(Segmenter):\n    '''Own.'''\n\n    def starts(self, view): ...\n"
    )
    file.write_text(source)
    module = importlib.import_module("own_segments_for_test")
    first = definitions.digests([module.Own])
    assert list(first) == ["own_segments_for_test"]
    assert definitions.outside_of_recipes(module.Own)
    file.write_text(f"{source}# more\n")
    assert definitions.digests([module.Own]) != first
    del sys.modules["own_segments_for_test"]


def test_components_of_fgrl_and_of_installed_packages_do_not_count() -> None:
    every = [registry.get(kind, name) for kind in registry.kinds() for name in registry.names(kind)]
    assert definitions.digests([*every, Segmenter]) == {}
