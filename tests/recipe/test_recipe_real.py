"""The registry over the components that ship: their help, the schema, and mistakes in a real recipe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from schema_complaints import complaints

from fgrl import registry
from fgrl.cli import main
from fgrl.experiments.recipe import know_components, load
from fgrl.experiments.recipe.schema import schema
from fgrl.registry import Problems, build, describe, dump, undocumented
from fgrl.registry.tree import Text, parse

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(file for folder in ("recipes", "recipes/small") for file in (ROOT / folder).glob("*.yaml"))
know_components()
COMPONENTS = [(kind, name) for kind in registry.kinds() for name in registry.names(kind)]


ONE_OF = {
    "elo_by_rule": "set either `rule` or `reward`",
    "function": "name one function under `path`",
    "functions": "name functions under `tools`",
    "human": "needs either `path`",
}
"""Components that need one of several fields, none of which is required by itself."""


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids="/".join)
def test_every_field_of_every_component_has_help(kind: str, name: str) -> None:
    cls = registry.get(kind, name)
    assert undocumented(cls) == []
    about = describe(kind, name)
    assert about["doc"]
    assert re.fullmatch(r".+\.py:\d+", about["source"])

    def documented(fields: list[dict[str, Any]]) -> None:
        for field in fields:
            assert field["help"], f"{cls.__name__}.{field['name']}"
            documented(field.get("fields", []))

    documented(about["fields"])
    json.dumps(about)


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids="/".join)
def test_a_component_of_defaults_dumps_and_builds_again(kind: str, name: str) -> None:
    if any(field.is_required() for field in registry.get(kind, name).model_fields.values()):
        with pytest.raises(Problems, match="missing; wants"):
            build(kind, name)
        return
    if name in ONE_OF:
        with pytest.raises(Problems, match=ONE_OF[name]):
            build(kind, name)
        return
    built = build(kind, name)
    assert build(kind, json.loads(json.dumps(dump(built)))) == built


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    return json.loads(json.dumps(schema()))


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_schema_takes_every_shipped_recipe(file: Path, rules: dict[str, Any]) -> None:
    tree, problems = parse(Text(file.read_text(encoding="utf-8"), file.name))
    assert tree is not None
    assert not problems
    assert complaints(tree.plain(), rules, rules) == []


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 47


@pytest.mark.parametrize(
    "text",
    [
        "stages: {}",
        "about: x\nsed: 3",
        "about: x\nseed: -1",
        "about: x\nseed: a",
        "about: x\nstages: {a: {name: finetun}}",
        "about: x\nstages: {a: {name: finetune, dat: 1}}",
        "about: x\nstages: {a: {name: finetune, train: {lr: 0}}}",
        "about: x\nstages: {a: {name: finetune, train: {lr: fast}}}",
        "about: x\nstages: {a: {name: finetune, algorithm: {name: bradley_terry, segmenter: entropi}}}",
        "about: x\nstages: {a: {name: finetune, algorithm: {name: bradley_terry, segmenter: {name: ngram, n: 0}}}}",
        "about: x\nstages: {a: {name: finetune, algorithm: {name: bradley_terry, aggregate: mea}}}",
    ],
)
def test_the_schema_refuses(text: str, rules: dict[str, Any]) -> None:
    tree, _ = parse(Text(text, "x"))
    assert tree is not None
    assert complaints(tree.plain(), rules, rules) != []


def test_a_recipe_that_only_waits_for_a_variable_is_right_but_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'about: x\nvars: {sft: null}\nstages:\n  a: {name: sample, prompts: {name: lines, path: t.txt}, model: "${vars.sft}",'
    Path("t.txt").write_text("x\n")
    Path("r.yaml").write_text(text + " sampling: {max_new_tokens: 5}}\n")
    with pytest.raises(Problems, match=r"r\.yaml:2:8: vars\.sft: has no value: set it with vars\.sft=\.\.\.") as caught:
        load("r.yaml")
    assert caught.value.needs == ["vars.sft"]
    assert load("r.yaml", ["vars.sft=hub/model"]).stages["a"].model.base == "hub/model"
    with pytest.raises(SystemExit) as left:
        main(["validate", "r.yaml"])
    assert left.value.code == 0
    assert "r.yaml: ok, needs vars.sft=..." in capsys.readouterr().out
    Path("r.yaml").write_text(text + " sampling: {max_new_tokens: 0}}\n")
    with pytest.raises(Problems) as caught:
        load("r.yaml")
    assert caught.value.needs == []
    with pytest.raises(SystemExit) as left:
        main(["validate", "r.yaml"])
    assert left.value.code == 2


def test_the_messages_in_the_documentation_are_the_real_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ```yaml block of docs/recipes.md that names its file is followed by what `fgrl validate` says of it."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"```yaml\n# (\S+\.yaml)\n(.*?)```\n+```text\n\$ fgrl validate \1(.*?)\n(.*?)```", page, re.DOTALL
    )
    assert len(shown) == 1
    monkeypatch.chdir(tmp_path)
    Path("topics.txt").write_text("rivers\n")
    for name, text, overrides, message in shown:
        Path(name).write_text(f"# {name}\n{text}", encoding="utf-8")
        with pytest.raises(Problems) as caught:
            load(name, overrides.split())
        assert str(caught.value) == message.rstrip("\n")


def test_the_order_of_keys_has_no_meaning(tmp_path: Path) -> None:
    text = "seed: 1\nvars: {n: 2}\nabout: x\nstages: {a: {name: average, models: [gpt2, gpt2]}}\n"
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(Problems) as refused:
        load(tmp_path / "r.yaml")
    assert [problem.path for problem in refused.value.problems if problem.path[:1] == ("about",)] == []
