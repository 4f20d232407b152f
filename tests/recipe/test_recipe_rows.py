"""Rows: variants of a recipe in its own file, and what a file that extends another inherits."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_world import world  # noqa: F401
from wording import said

from fgrl.experiments.recipe import Address, expand, load, recipe_name, rows
from fgrl.experiments.recipe.files import read
from fgrl.registry import Problems

BASE = """
about: "the base"
vars: {size: 1, colour: red}
stages: {draw: {name: a, deep: {x: 1, y: 1}}}
rows:
  wide:
    about: "twice as wide"
    stages: {draw: {deep: {x: 2}}}
  tall:
    about: "twice as tall"
    stages: {draw: {deep: {y: 2}}}
  both:
    extends: [wide, tall]
    about: "twice as wide and as tall"
  huge:
    extends: both
    about: "huge"
    vars: {size: 9}
"""
SMALL = """
extends: base.yaml
about: "the small one"
vars: {size: 0.1}
rows:
  wide: {stages: {draw: {deep: {x: 1.5}}}}
  own: {about: "only here", vars: {colour: blue}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE, encoding="utf-8")
    Path("small.yaml").write_text(SMALL, encoding="utf-8")


def merged(address: str) -> dict:
    tree, _layers, problems = read(Address.parse(address))
    assert problems == []
    assert tree is not None
    return tree.plain()


def test_a_file_without_a_row_is_its_own_recipe() -> None:
    assert merged("base.yaml") == {
        "about": "the base", "vars": {"size": 1, "colour": "red"}, "stages": {"draw": {"name": "a", "deep": {"x": 1, "y": 1}}}
    }  # fmt: skip


def test_a_row_lies_over_its_file_and_the_rows_it_extends() -> None:
    assert merged("base.yaml::wide")["stages"]["draw"]["deep"] == {"x": 2, "y": 1}
    assert merged("base.yaml::both")["stages"]["draw"]["deep"] == {"x": 2, "y": 2}
    huge = merged("base.yaml::huge")
    assert (huge["about"], huge["vars"], huge["stages"]["draw"]["deep"]) == (
        "huge", {"size": 9, "colour": "red"}, {"x": 2, "y": 2}
    )  # fmt: skip


def test_who_extends_a_file_inherits_its_rows_and_may_change_them() -> None:
    assert merged("small.yaml::tall") == {
        "about": "twice as tall", "vars": {"size": 0.1, "colour": "red"},
        "stages": {"draw": {"name": "a", "deep": {"x": 1, "y": 2}}},
    }  # fmt: skip
    assert merged("small.yaml::wide")["stages"]["draw"]["deep"]["x"] == 1.5
    assert merged("small.yaml::both")["stages"]["draw"]["deep"] == {"x": 1.5, "y": 2}, (
        "the row that it extends is changed too"
    )
    assert merged("small.yaml::huge")["vars"] == {"size": 9, "colour": "red"}, "a row is stronger than the file"
    assert merged("small.yaml::own")["vars"] == {"size": 0.1, "colour": "blue"}


def test_the_rows_of_a_file_are_listed_inherited_ones_first() -> None:
    assert rows(Path("base.yaml")) == ["wide", "tall", "both", "huge"]
    assert rows(Path("small.yaml")) == ["wide", "tall", "both", "huge", "own"]
    assert expand("small.yaml::*") == [f"small.yaml::{row}" for row in rows(Path("small.yaml"))]
    assert expand("small.yaml::[wt]*") == ["small.yaml::wide", "small.yaml::tall"]
    assert expand("small.yaml::own") == ["small.yaml::own"]
    assert expand("small.yaml") == ["small.yaml"]


def test_a_file_may_extend_one_row_and_then_inherits_no_other() -> None:
    Path("thin.yaml").write_text('extends: small.yaml::wide\nabout: "thin"\n', encoding="utf-8")
    assert merged("thin.yaml")["stages"]["draw"]["deep"]["x"] == 1.5
    assert rows(Path("thin.yaml")) == []


def test_layers_come_strongest_first_and_each_once() -> None:
    _tree, layers, _problems = read(Address.parse("small.yaml::both"))
    abouts = [layer.children["about"].value if "about" in layer.children else None for layer in layers]
    assert abouts == [
        None, "twice as wide and as tall",  # both: the small file has nothing of its own
        "twice as tall", None, "twice as wide", "the small one", "the base",
    ]  # fmt: skip


WRONG = [
    "rows: {wide: 3}",
    "rows: [wide]",
    "rows: {wide: {about: w, stage: {}}}",
    "rows: {wide: {stages: {}}}",
    "rows: {wide: {about: w, extends: tal}, tall: {about: t}}",
    "rows: {wide: {about: w, extends: [3]}}",
    "rows: {wide: {about: w, extends: wide}}",
    "rows: {wide: {about: w, extends: tall}, tall: {about: t, extends: wide}}",
    'rows: {"a b": {about: w}, wide: {about: w}}',
    "rows: {wide: {about: w, extends: [tall, high]}, tall: {about: t, extends: high}, high: {about: h}}",
    "rows: {wide: {about: w, stages: 3}}",
    "rows: {tall: {about: t}}",
    "rows: null",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_in_the_rows_is_told_with_its_place(text: str) -> None:
    Path("base.yaml").write_text(f'about: "x"\n{text}\nstages: {{}}\n', encoding="utf-8")
    _tree, _layers, problems = read(Address.parse("base.yaml::wide"))
    assert problems
    said("validate", text, str(Problems(problems)))


def test_a_row_says_what_it_is_for() -> None:
    text = "rows: {wide: {about: ''}}"
    Path("base.yaml").write_text(f'about: "x"\n{text}\nstages: {{}}\n', encoding="utf-8")
    with pytest.raises(Problems, match="about: is empty; say what the recipe is for") as caught:
        load("base.yaml::wide")
    said("validate", text, str(caught.value))


def test_a_row_that_the_recipe_lacks_is_reported_where_it_is_named() -> None:
    Path("thin.yaml").write_text('extends: small.yaml::wyde\nabout: "thin"\n', encoding="utf-8")
    with pytest.raises(Problems) as caught:
        load("thin.yaml")
    said("validate", "extends a row that is not there", str(caught.value))
    with pytest.raises(Problems) as caught:
        expand("small.yaml::x*")
    said("validate", "a pattern that no row has", str(caught.value))


def test_a_problem_in_a_row_has_the_place_in_the_row(world) -> None:  # noqa: F811
    Path("shapes.yaml").write_text(
        """about: x
stages: {draw: {name: draw, shape: {name: square, side: 1.0}}}
rows:
  bad:
    about: y
    stages: {draw: {shape: {side: wide}}}
""",
        encoding="utf-8",
    )
    load("shapes.yaml")
    with pytest.raises(Problems) as raised:
        load("shapes.yaml::bad")
    (problem,) = raised.value.problems
    assert problem.place is not None
    assert (problem.place.line, ".".join(map(str, problem.path))) == (6, "stages.draw.shape.side")


def test_a_row_has_a_run_folder_of_its_own() -> None:
    assert recipe_name("recipes/small/dpo.yaml::phi3") == "small-dpo-phi3"
    assert recipe_name(Path("dpo.yaml")) == "dpo"


@pytest.mark.parametrize(
    "file", ["...yaml", "..yaml", ".yaml", "....yaml", "recipes/...yaml", "recipes/.hidden.yaml", "stages.yaml"]
)
@pytest.mark.parametrize("row", [None, "a", "a/../../b", ".."])
def test_a_run_folder_is_inside_the_runs_folder(tmp_path: Path, file: str, row: str | None) -> None:
    address = str(Address(tmp_path / file, row))
    folder = tmp_path / "runs" / recipe_name(address)
    assert folder.resolve().parent == tmp_path / "runs"
    assert folder.name not in ("stages", "cache")
    assert not folder.name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("line", "message"),
    [("about: 3", "about: wants str, got int 3"), ('about: ""', "about: is empty; say what the recipe is for"),
     ('about: x\ndtype: ""', 'dtype: wants one of auto, float32, bfloat16, got ""')],
)  # fmt: skip
def test_a_mistake_at_the_top_of_a_recipe_is_reported_once(line: str, message: str) -> None:
    Path("base.yaml").write_text(f"{line}\nstages: {{}}\n", encoding="utf-8")
    with pytest.raises(Problems) as raised:
        load("base.yaml")
    assert str(raised.value).count(message) == 1
