"""Components of a user's file and of an installed package, as a recipe and `fgrl show` see them."""

from __future__ import annotations

import importlib
import linecache
import sys
from pathlib import Path
from types import ModuleType

import pytest
from recipe_world import recipe, world  # noqa: F401
from scratch_registry import scratch

from fgrl import registry
from fgrl.base.errors import UsageError
from fgrl.base.files import sha256_of_code
from fgrl.experiments.pipeline import keys
from fgrl.experiments.recipe import load
from fgrl.registry import Problems, describe, import_file, load_entry_points, outside

ROOT = Path(__file__).resolve().parents[2]
STAR = '''\
"""A file of mine."""

from pydantic import Field

from fgrl.registry import register
from recipe_world import Shape


@register("{name}")
class Star(Shape):
    """A star with points."""

    points: int = Field(5, ge=3)
    """How many."""

    def area(self) -> float:
        return {area}
'''
RECIPE = "about: x\n{imports}stages:\n  a: {{name: draw, shape: {{name: star, points: 7}}}}\n"


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: None) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outside, "_imported", {})
    monkeypatch.setattr(outside, "_loaded", set())
    monkeypatch.setattr(outside, "_packages", {})
    monkeypatch.setattr("fgrl.experiments.recipe.loading._by_recipes", set())


def test_a_recipe_imports_a_file_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "star.py").write_text(STAR.format(name="star", area=1.0))
    (folder / "r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    loaded = load("mine/r.yaml")
    shape = loaded.stages["a"].shape
    assert registry.name_of(shape) == ("shape", "star")
    assert shape.points == 7
    assert list(loaded.sources) == [folder / "star.py"]
    assert loaded.data["imports"] == [str(folder / "star.py")]
    about = describe("shape", "star")
    assert about["source"] == "mine/star.py:9"
    assert about["fields"][0]["help"] == "How many."
    # and what is wrong in it is told like anything else
    (folder / "r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n").replace("7", "2"))
    with pytest.raises(Problems, match=r"mine/r\.yaml:4:39: stages\.a\.shape\.points: wants a number >= 3, got 2"):
        load("mine/r.yaml")


def test_a_changed_file_is_imported_again_and_has_another_source() -> None:
    Path("r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    Path("star.py").write_text(STAR.format(name="star", area=1.0))
    first = load("r.yaml")
    again = load("r.yaml")
    assert type(again.stages["a"].shape) is type(first.stages["a"].shape)
    Path("star.py").write_text(STAR.format(name="star", area=2.0))
    second = load("r.yaml")
    assert (first.stages["a"].shape.area(), second.stages["a"].shape.area()) == (1.0, 2.0)
    assert first.sources != second.sources
    assert registry.name_of(first.stages["a"].shape) == ("shape", "star")


def test_another_recipe_does_not_know_the_file_and_may_bring_the_same_name() -> None:
    Path("r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    Path("star.py").write_text(STAR.format(name="star", area=1.0))
    Path("other.py").write_text(STAR.format(name="star", area=2.0))
    load("r.yaml")
    Path("without.yaml").write_text(RECIPE.format(imports=""))
    with pytest.raises(Problems, match='unknown shape "star"'):
        load("without.yaml")
    Path("other.yaml").write_text(RECIPE.format(imports="imports: [other.py]\n"))
    assert load("other.yaml").stages["a"].shape.area() == 2.0
    assert load("r.yaml").stages["a"].shape.area() == 1.0


def test_files_import_the_files_beside_them() -> None:
    """Also each other, and inside a function; a changed one is imported again, with those that import it."""
    Path("mine").mkdir()
    star = STAR.format(name="star", area="SIZE + later()").replace(
        "import Shape", "import Shape\nfrom sizes import SIZE"
    )
    more = "\n\ndef later() -> float:\n    import more\n    return more.MORE\n"
    Path("mine/star.py").write_text(star + more)
    Path("mine/sizes.py").write_text("import more\nimport random\nSIZE = 1.0 + more.MORE\n")
    Path("mine/more.py").write_text("import sizes\nMORE = 0.5\n")
    Path("mine/random.py").write_text("raise RuntimeError('Python has one of this name')\n")
    Path("mine/r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    loaded = load("mine/r.yaml")
    assert loaded.stages["a"].shape.area() == 2.0
    assert {file.name for file in loaded.sources} == {"star.py", "sizes.py", "more.py"}
    assert not {"star", "sizes", "more"} & set(sys.modules)
    assert loaded.built_anew("a").shape.area() == 2.0
    Path("mine/more.py").write_text("import sizes\nMORE = 1.0\n")
    again = load("mine/r.yaml")
    assert again.stages["a"].shape.area() == 3.0
    assert again.sources != loaded.sources
    Path("mine/more.py").write_text("MORE = 1.0 / 0\n")
    with pytest.raises(Problems, match=r"mine/more\.py:1:8: cannot be imported: ZeroDivisionError"):
        load("mine/r.yaml")
    Path("without.yaml").write_text(RECIPE.format(imports=""))
    with pytest.raises(Problems, match='unknown shape "star"'):
        load("without.yaml")


def test_a_helper_imported_in_a_function_counts_before_the_function_runs() -> None:
    later = (
        STAR.format(name="star", area="later()")
        + "\n\ndef later() -> float:\n    from sizes import SIZE\n    return SIZE\n"
    )
    Path("star.py").write_text(later)
    Path("sizes.py").write_text("import more\nSIZE = more.MORE\n")
    Path("more.py").write_text("MORE = 1.5\n")
    Path("other.py").write_text("not_imported = 1\n")
    Path("r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    first = load("r.yaml")
    assert {file.name for file in first.sources} == {"star.py", "sizes.py", "more.py"}
    assert first.stages["a"].shape.area() == 1.5
    again = load("r.yaml")
    assert again.sources == first.sources
    assert type(again.stages["a"].shape) is type(first.stages["a"].shape)
    Path("more.py").write_text("MORE = 2.5\n")
    edited = load("r.yaml")
    assert edited.sources != first.sources
    assert edited.stages["a"].shape.area() == 2.5
    assert edited.built_anew("a").shape.area() == 2.5


def test_every_file_that_imports_an_edited_helper_gets_the_new_one() -> None:
    """Also those that are imported after another one brought the new helper."""
    Path("sizes.py").write_text("SIZE = 1\n")
    for name in ("first", "second"):
        Path(f"{name}.py").write_text("from sizes import SIZE\n")
    assert [import_file(Path(f"{name}.py")).SIZE for name in ("first", "second")] == [1, 1]
    Path("sizes.py").write_text("SIZE = 2\n")
    modules = [import_file(Path(f"{name}.py")) for name in ("first", "second")]
    assert [module.SIZE for module in modules] == [2, 2]
    assert [import_file(Path(f"{name}.py")) for name in ("first", "second")] == modules
    # a helper that was removed from the registry is executed again with those that import it
    outside.forget_file(Path("sizes.py").resolve())
    assert import_file(Path("second.py")) is not modules[1]


@pytest.mark.parametrize("annotation", ["Undefined", "io.StringIO"])
def test_a_field_that_no_recipe_can_fill_is_refused_with_the_file(annotation: str) -> None:
    """Validators are built late; a class from outside must not fail only then."""
    source = STAR.format(name="star", area="1").replace("points: int = Field(5, ge=3)", f"points: {annotation}")
    Path("stars.py").write_text("import io\n" + source, encoding="utf-8")
    with pytest.raises(Problems) as raised:
        import_file(Path("stars.py"))
    assert annotation.removeprefix("io.") in str(raised.value)
    assert "stars.py:" in str(raised.value)


def test_a_parent_s_imports_hold_for_its_children() -> None:
    Path("base").mkdir()
    Path("base/star.py").write_text(STAR.format(name="star", area=1.0))
    Path("base/r.yaml").write_text(RECIPE.format(imports="imports: [star.py]\n"))
    Path("child.yaml").write_text("extends: base/r.yaml\nabout: y\nstages: {a: {shape: {points: 4}}}\n")
    assert load("child.yaml").stages["a"].shape.points == 4


def test_a_file_that_raises_leaves_nothing_behind() -> None:
    Path("star.py").write_text(STAR.format(name="star", area=1.0) + "\n\nraise RuntimeError('half way')\n")
    before = set(sys.modules)
    with pytest.raises(Problems, match=r"star\.py:20:1: cannot be imported: RuntimeError: half way"):
        import_file(Path("star.py"))
    assert "star" not in registry.names("shape")
    assert not [name for name in set(sys.modules) - before if name.startswith("fgrl_imported")]
    with pytest.raises(Problems, match=r"nowhere\.py: no such file"):
        import_file(Path("nowhere.py"))


CELL = """
from fgrl.kinds import Segmenter

class Mine(Segmenter):
    'What it is.'

    n: int = 3
    'A number.'

    def starts(self, view):
        return view.mask
"""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A `__main__` without a file, as that of a notebook."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def digests_of_cell(main: ModuleType, source: str, name: str = "<cell 1>") -> dict[str, str]:
    """Run a cell as IPython does: its lines are known to `linecache` under a name that is no file."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
    return outside.digests([main.Mine])


def test_the_cell_that_defines_a_component_counts_as_a_whole(main: ModuleType) -> None:
    first = digests_of_cell(main, CELL)
    assert list(first) == ["__main__.Mine"]
    assert digests_of_cell(main, CELL, "<cell 2>") == first, "a cell's name does not count"
    assert digests_of_cell(main, CELL.replace("view.mask", "~view.mask")) != first
    assert digests_of_cell(main, f"{CELL}\nLIMIT = 3\n") != first
    exec(CELL, main.__dict__)
    with pytest.raises(UsageError, match="the source of Mine is not known"):
        outside.digests([main.Mine])


def test_a_module_of_the_user_counts_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_segments_for_test.py"
    file.write_text(CELL)
    module = importlib.import_module("own_segments_for_test")
    first = outside.digests([module.Mine])
    assert first == {"own_segments_for_test": sha256_of_code(CELL.encode())}
    file.write_text(f"{CELL}# more\n")
    assert outside.digests([module.Mine]) == first
    file.write_text(f"{CELL}MORE = 1\n")
    assert outside.digests([module.Mine]) != first
    del sys.modules["own_segments_for_test"]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_library_in_any_folder_is_none_of_the_user_s(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install --target FOLDER` records what it brings; a file beside that is the user's."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "segments_in_a_folder").mkdir()
    (tmp_path / "segments_in_a_folder" / "__init__.py").write_text(CELL)
    (tmp_path / "segments-1.0.dist-info").mkdir()
    (tmp_path / "segments-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: segments\nVersion: 1.0\n"
    )
    brought = "segments_in_a_folder/__init__.py,,\n" if recorded else "another.py,,\n"
    (tmp_path / "segments-1.0.dist-info" / "RECORD").write_text(brought)
    module = importlib.import_module("segments_in_a_folder")
    assert list(outside.digests([module.Mine])) == ([] if recorded else ["segments_in_a_folder"])
    del sys.modules["segments_in_a_folder"]


def test_components_of_fgrl_count_by_their_version() -> None:
    every = [registry.get(kind, name) for kind in registry.kinds() for name in registry.names(kind)]
    assert outside.digests([cls for cls in every if cls.__module__.startswith("fgrl.")]) == {}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small installed package with an entry point in `fgrl.components`."""
    site = tmp_path / "site-packages"
    (site / "fgrl_stars-1.0.dist-info").mkdir(parents=True)
    (site / "fgrl_stars-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fgrl-stars\nVersion: 1.0\n"
    )
    (site / "fgrl_stars-1.0.dist-info" / "entry_points.txt").write_text("[fgrl.components]\nstars = fgrl_stars\n")
    (site / "fgrl_stars.py").write_text(STAR.format(name="star", area=1.0))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "fgrl_stars", raising=False)
    return site


def test_an_installed_package_brings_components_by_an_entry_point(package: Path) -> None:
    Path("r.yaml").write_text(RECIPE.format(imports=""))
    loaded = load("r.yaml")
    assert registry.name_of(loaded.stages["a"].shape) == ("shape", "star")
    assert loaded.sources == {}
    assert describe("shape", "star")["doc"] == "A star with points."
    sys.modules.pop("fgrl_stars")


def test_the_packages_version_counts_in_the_keys_of_the_stages_that_use_it(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("r.yaml").write_text(RECIPE.format(imports="") + "  b: {name: draw, shape: {name: square, side: 2}}\n")

    def identities() -> dict[str, keys.Identity]:
        with scratch():
            monkeypatch.setattr(outside, "_loaded", set())
            monkeypatch.delitem(sys.modules, "fgrl_stars", raising=False)
            stages = load("r.yaml").stages
            return {name: keys.identity(stages[name], seed=0, upstream={}) for name in "ab"}

    before = identities()
    assert before["a"]["packages"] == {"fgrl-stars": "1.0"}
    assert "packages" not in before["b"]
    about = package / "fgrl_stars-1.0.dist-info" / "METADATA"
    about.write_text(about.read_text().replace("Version: 1.0", "Version: 1.1"))
    after = identities()
    assert keys.key(after["a"]) != keys.key(before["a"])
    assert after["b"] == before["b"]


def test_a_package_that_cannot_be_imported_is_named(package: Path) -> None:
    (package / "fgrl_stars.py").write_text("import no_such_module\n")
    with pytest.raises(
        Problems,
        match=r'installed packages: fgrl-stars: its entry point "stars = fgrl_stars" raised ModuleNotFoundError',
    ):
        load_entry_points()
