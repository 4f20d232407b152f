"""`extends` and overrides: what lies over what, and where each value then comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recipe_world import Group, Ring, Square, recipe, world  # noqa: F401

from fgrl.experiments.recipe import load
from fgrl.experiments.recipe.files import Address, read
from fgrl.experiments.recipe.merging import merge, override
from fgrl.registry import Problems
from fgrl.registry.building import BARE
from fgrl.registry.tree import Text, Tree, parse


def tree(text: str) -> Tree:
    found, problems = parse(Text(text, "x.yaml"))
    assert found is not None
    assert not problems
    return found


@pytest.mark.parametrize(
    ("below", "above", "result"),
    [
        ("{a: 1, b: 2}", "{b: 3, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{a: {b: {c: 1, d: 2}}}", "{a: {b: {d: 3}}}", {"a": {"b": {"c": 1, "d": 3}}}),
        ("{a: [1, 2]}", "{a: [3]}", {"a": [3]}),
        ("{a: {b: 1}}", "{a: 2}", {"a": 2}),
        ("{a: 1}", "{a: {b: 2}}", {"a": {"b": 2}}),
        ("{a: {name: x, b: 1}}", "{a: {name: y}}", {"a": {"name": "y"}}),
        ("{a: {name: x, b: 1}}", "{a: {name: x, c: 2}}", {"a": {"name": "x", "b": 1, "c": 2}}),
        ("{a: {name: x, b: 1}}", "{a: {c: 2}}", {"a": {"name": "x", "b": 1, "c": 2}}),
        ("{a: {name: x, b: 1}}", "{a: x}", {"a": "x"}),
        ("{a: {b: 1}}", "{a: {name: x}}", {"a": {"b": 1, "name": "x"}}),
        ("{a: x}", "{a: {b: 1}}", {"a": {BARE: "x", "b": 1}}),
        ("{a: x}", "{a: {name: x, b: 1}}", {"a": {"name": "x", "b": 1}}),
        ("{a: {b: 1}}", "{a: null}", {"a": None}),
        ("{a: {b: {c: 1}}}", "{a: {b: null}}", {"a": {"b": None}}),
    ],
)
def test_merging(below: str, above: str, result: dict[str, Any]) -> None:
    assert merge(tree(below), tree(above)).plain() == result


def test_a_null_that_is_laid_over_drops_and_one_below_does_not() -> None:
    merged = merge(tree("{a: null, b: 1, c: null}"), tree("{b: null, d: {e: null}}"))
    assert {path: leaf.dropped for path, leaf in merged.leaves()} == {
        ("a",): False, ("b",): True, ("c",): False, ("d", "e"): True,
    }  # fmt: skip


def laid(text: str, *arguments: str) -> Any:
    found, problems = override(tree(text), list(arguments))
    assert not problems, problems
    return found.plain()


RECIPE = "{vars: {v: 1}, seed: 0, stages: {s: {name: a, x: {name: b, y: 1}, l: [{name: c, z: 1}, d], t: e}}}"


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        (["seed=3"], ("seed",), 3),
        (["vars.v=[1, two]"], ("vars", "v"), [1, "two"]),
        (["vars.v=5e-7"], ("vars", "v"), 5e-7),
        (["vars.v=no"], ("vars", "v"), "no"),
        (["vars.v=a=b"], ("vars", "v"), "a=b"),
        (['vars.v=""'], ("vars", "v"), ""),
        (["stages.s.x.y=2"], ("stages", "s", "x"), {"name": "b", "y": 2}),
        (["stages.s.x={z: 2}"], ("stages", "s", "x"), {"name": "b", "y": 1, "z": 2}),
        (["stages.s.x.name=q"], ("stages", "s", "x"), {"name": "q"}),
        (["stages.s.x.w=5", "stages.s.x.name=q"], ("stages", "s", "x"), {"name": "q", "w": 5}),
        (["stages.s.x=q"], ("stages", "s", "x"), "q"),
        (["stages.s.l.0.z=2"], ("stages", "s", "l"), [{"name": "c", "z": 2}, "d"]),
        (["stages.s.l[1]=f"], ("stages", "s", "l"), [{"name": "c", "z": 1}, "f"]),
        (["stages.s.l.1.k=2"], ("stages", "s", "l", 1), {BARE: "d", "k": 2}),
        (["stages.s.t.k=2", "stages.s.t.m=3"], ("stages", "s", "t"), {BARE: "e", "k": 2, "m": 3}),
        (["stages.s.t.name=f", "stages.s.t.m=3"], ("stages", "s", "t"), {"name": "f", "m": 3}),
        (["stages.new={name: a}"], ("stages", "new"), {"name": "a"}),
        (["stages.s=null"], ("stages",), {"s": None}),
        (["seed=1", "seed=2"], ("seed",), 2),
    ],
)
def test_overrides(arguments: list[str], path: tuple[Any, ...], value: Any) -> None:
    found = laid(RECIPE, *arguments)
    for part in path:
        found = found[part]
    assert found == value


def test_an_override_of_a_bare_name_sets_a_field_of_the_component(recipe: Path) -> None:  # noqa: F811
    loaded = load(
        recipe, ["stages.sketch.shape.shapes.0.inner=0.5", "stages.sketch.pen=blue", "stages.sketch.pen.width=3"]
    )
    assert loaded.stages["sketch"].shape.shapes[0] == Ring(inner=0.5)
    assert (loaded.stages["sketch"].pen.colour, loaded.stages["sketch"].pen.width) == ("blue", 3.0)
    assert loaded.data["stages"]["sketch"]["shape"]["shapes"][0] == {"name": "ring", "inner": 0.5}


def test_a_child_keeps_changes_replaces_and_drops(recipe: Path) -> None:  # noqa: F811
    loaded = load(recipe)
    sketch = loaded.stages["sketch"]
    assert sketch.shape == Group(shapes=[Ring(), Square(side=1.0, label="a")], named={"big": Ring(outer=3.0)})
    assert (sketch.pen.colour, sketch.pen.width, sketch.copies) == ("green", 0.5, 4)
    assert (loaded.about, loaded.seed) == ("The child.", 3)
    assert loaded.stages["model"].lr == 1e-3
    dropped = load(
        recipe, ["stages.verdict=null", "stages.sketch.words=null", "stages.sketch.copies=null", "seed=null"]
    )
    assert "verdict" not in dropped.stages
    assert (dropped.stages["sketch"].words, dropped.stages["sketch"].copies, dropped.seed) == (None, 1, 0)


def test_origins_say_where_each_value_was_written(recipe: Path) -> None:  # noqa: F811
    origins = {
        path: str(place) for path, place in load(recipe, ["vars.rate=0.5", "stages.sketch.copies=9"]).origins.items()
    }
    assert origins[("about",)] == "child.yaml:2:1"
    assert origins[("seed",)] == "parent.yaml:2:1"
    assert origins[("stages", "sketch", "pen", "colour")] == "parent.yaml:13:7"
    assert origins[("stages", "sketch", "shape", "shapes", 1, "side")] == "child.yaml:12:11"
    assert origins[("stages", "sketch", "shape", "named", "big", "outer")] == "child.yaml:4:3"
    assert origins[("stages", "sketch", "copies")] == origins[("stages", "model", "lr")] == "command line"


def write(**files: str) -> None:
    for name, text in files.items():
        Path(f"{name}.yaml").write_text(text)


def order(path: str) -> list[str]:
    _, layers, problems = read(Address.parse(path))
    assert not problems, problems
    return [layer.place.label for layer in layers]


def test_a_chain_of_files_lies_over_its_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        paper="about: p\nvars: {a: 1, b: 1, c: 1}",
        small="extends: paper.yaml\nabout: s\nvars: {a: 3, b: 3}",
        deeper="about: d\nextends: small.yaml\nvars: {c: 5}",
    )
    assert order("deeper.yaml") == ["deeper.yaml", "small.yaml", "paper.yaml"]
    merged, _, _ = read(Address.parse("deeper.yaml"))
    assert merged is not None
    assert merged.plain() == {"about": "d", "vars": {"a": 3, "b": 3, "c": 5}}


def test_files_are_relative_to_the_recipe_that_names_them(
    world: None,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "w.txt").write_text(folder)
    Path("one/base.yaml").write_text(
        "about: b\nvars: {w: w.txt, dir: .}\nstages:\n  a: {name: draw, shape: ring, words: w.txt}\n"
        '  b: {name: draw, shape: ring, words: "${vars.w}"}\n  c: "${stages.a}"\n'
        '  d: {name: draw, shape: ring, words: "${vars.dir}/w.txt"}\n'
    )
    Path("two/child.yaml").write_text("extends: ../one/base.yaml\nabout: c\nvars: {w: w.txt}\n")

    def words(*arguments: str) -> list[str]:
        return [Path(stage.words).parent.name for stage in load("two/child.yaml", arguments).stages.values()]

    assert words() == ["one", "two", "one", "one"]
    assert words("vars.w=w.txt", "stages.d.words=w.txt") == ["one", tmp_path.name, "one", tmp_path.name]


def test_to_yaml_loads_to_the_same_from_anywhere(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    loaded = load(recipe, ["vars.rate=2e-7"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("resolved.yaml").write_text(loaded.to_yaml())
    again = load("resolved.yaml")
    assert again.stages == loaded.stages
    assert list(again.stages) == list(loaded.stages)
    assert (again.about, again.seed, again.to_yaml()) == (loaded.about, loaded.seed, loaded.to_yaml())
    assert "${vars" not in loaded.to_yaml()


def test_stages_run_in_the_recipe_s_order_as_far_as_their_references_let_them(
    world: None,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(
        "about: x\nstages:\n"
        '  late: {name: judge, models: {a: "${out:two}", b: "${out:one}"}}\n'
        '  one: {name: train, data: "${out:source}", lr: 1}\n'
        "  free: {name: draw, shape: ring}\n"
        "  source: {name: draw, shape: ring}\n"
        '  two: {name: train, data: "${out:source}", base: "${out:one}", lr: 1}\n'
    )
    loaded = load("r.yaml")
    assert list(loaded.stages) == ["free", "source", "one", "two", "late"]
    assert loaded.graph() == {
        "free": [],
        "source": [],
        "one": ["source"],
        "two": ["source", "one"],
        "late": ["one", "two"],
    }
    assert list(loaded.data["stages"]) == list(loaded.stages)


def test_a_dropped_stage_that_is_still_referred_to(recipe: Path) -> None:  # noqa: F811
    with pytest.raises(Problems) as caught:
        load(recipe, ["stages.second=null"])
    assert str(caught.value) == (
        'child.yaml:31:7: stages.verdict.models.other: refers to stage "second", which was dropped on the command line\n'
        '  31 |       other: "${out:second}"\n     |       ^\n    = choices: sketch, model, verdict\n'
        "1 problem found; nothing was run."
    )


def test_an_override_below_a_text_that_stands_for_nothing_is_explained(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("rivers\n", encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(
        "stages:\n  answers:\n    name: sample\n    prompts: {name: lines, path: topics.txt}\n    model: hub/model\n    sampling: x\n",
        encoding="utf-8",
    )
    with pytest.raises(Problems, match=r'stages.answers.sampling: wants .*, got .*"x"'):
        load(tmp_path / "bad.yaml", ["stages.answers.sampling.max_new_tokens=5"])
