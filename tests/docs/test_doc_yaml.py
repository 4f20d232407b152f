"""YAML of the README and of `docs/`: whole recipes load, and fragments fit the schema of recipes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT, Block, blocks
from schema_complaints import complaints

from fgrl import registry
from fgrl.experiments import recipe as recipes
from fgrl.experiments.recipe.schema import schema
from fgrl.registry import Problems
from fgrl.registry.tree import Text, parse

PARTS_OF_OTHER_FILES = {
    "as_of": "prices of a client",
    "taxonomy": "an annotation page",
    "guidelines": "an annotation page",
    "modes": "an annotation page",
    "published": "a table of a paper",
}
"""Keys of files that are no recipes; the tests of their how-to pages read these blocks."""
MADE_ELSEWHERE = ("every_third", "uncertain_half", "guess.py")
"""The component that `fgrl new` writes, which the tests of `fgrl new` use in a recipe, and those of the pages on credit assignment and
on environments, which the tests of these pages follow."""
SHOWS_MISTAKES = ("bad.yaml",)
"""Recipes beside their error messages, which are compared with the real ones elsewhere."""

LOADED_ELSEWHERE = ("docs/how-to/from-trl.md", "docs/how-to/from-verl.md")
"""Pages with recipes that need a folder of the reader; a test of their own makes it."""

found = blocks("yaml", "yml")


def plain(block: Block) -> dict[str, Any]:
    """The block as data. `...` stands for anything: it is left out, or becomes an interpolation."""
    text = re.sub(r"^\s*\.\.\.\s*$\n?", "", block.text, flags=re.MULTILINE)
    tree, problems = parse(Text(text, block.page))
    assert not problems, problems
    assert tree is not None
    value = without_dots(tree.plain())
    assert isinstance(value, dict)
    return value


def without_dots(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"..."}:
            return "${anything}"
        inner = {key: without_dots(item) for key, item in value.items() if key != "..."}
        return {key: {} if key == "stages" and item == "${anything}" else item for key, item in inner.items()}
    if isinstance(value, list):
        return [without_dots(item) for item in value if item != "..."]
    return "${anything}" if value == "..." else value


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    return json.loads(json.dumps(schema()))


def best(value: dict[str, Any], options: list[dict[str, Any]], rules: dict[str, Any]) -> list[str]:
    """The complaints of the option that has the fewest."""
    return min((complaints(value, option, rules) for option in options), key=len)


def complaints_of_fragment(value: dict[str, Any], rules: dict[str, Any]) -> list[str]:
    """A fragment may be a recipe, stages by name, one component, or fields of a component or of a stage."""
    definitions: dict[str, Any] = rules["$defs"]
    if set(value) <= set(rules["properties"]):
        return complaints({"about": "x", **value}, rules, rules)
    stages = registry.names("stage")
    if all(isinstance(item, dict) and item.get("name") in stages for item in value.values()):
        return complaints({"about": "x", "stages": value}, rules, rules)
    if isinstance(value.get("name"), str):
        owners = [kind for kind in registry.kinds() if value["name"] in registry.names(kind)]
        assert owners, f"no component is called {value['name']}"
        return best(value, [definitions[kind] for kind in owners], rules)
    parts = [part for part in definitions.values() if set(value) <= set(part.get("properties", {}))]
    if parts:
        return best(value, parts, rules)
    return [text for key, item in value.items() for text in complaints_of_entry(key, item, rules)]


def complaints_of_entry(key: str, item: Any, rules: dict[str, Any]) -> list[str]:
    """One line of a fragment: a stage under its name, or a field that some component has."""
    if isinstance(item, dict) and item.get("name") in registry.names("stage"):
        return complaints({"about": "x", "stages": {key: item}}, rules, rules)
    parts = [part for part in rules["$defs"].values() if key in part.get("properties", {})]
    if not parts:
        return [f"nothing has a field {key}"]
    return best({key: item}, parts, rules)


@pytest.mark.parametrize("block", found, ids=str)
def test_a_block_fits_the_schema(block: Block, rules: dict[str, Any]) -> None:
    if f"# {SHOWS_MISTAKES[0]}" in block.text or is_made_elsewhere(block):
        return
    value = plain(block)
    if not set(value) & set(PARTS_OF_OTHER_FILES):
        assert complaints_of_fragment(value, rules) == []


def is_made_elsewhere(block: Block) -> bool:
    return any(name in block.text for name in MADE_ELSEWHERE)


def name_of(block: Block) -> str:
    named = re.match(r"# ([\w-]+\.yaml)\n", block.text)
    return named[1] if named else "recipe.yaml"


def is_whole(block: Block) -> bool:
    """A recipe that can be loaded: with a purpose and stages, or a change of another file of its page."""
    return (
        bool(re.search(r"^about:", block.text, re.MULTILINE))
        and bool(re.search(r"^stages:\n", block.text, re.MULTILINE))
        and "..." not in block.text.replace("...]", "")
        and "rows:" not in block.text
        and name_of(block) not in SHOWS_MISTAKES
        and block.page not in LOADED_ELSEWHERE
        and not is_made_elsewhere(block)
    )


@pytest.mark.parametrize("block", [block for block in found if is_whole(block)], ids=str)
def test_a_whole_recipe_loads(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (tmp_path / "prompts").symlink_to(ROOT / "prompts")
    (tmp_path / "fgrl").symlink_to(ROOT / "fgrl")
    monkeypatch.chdir(folder)
    for other in sorted(found, key=lambda other: other.page == block.page):  # a page may extend a recipe of another one
        if name_of(other) != "recipe.yaml":
            Path(name_of(other)).write_text(other.text, encoding="utf-8")
    Path(name_of(block)).write_text(block.text, encoding="utf-8")
    for _ in range(5):  # files of the reader that the page describes
        try:
            recipe = recipes.load(name_of(block))
            break
        except Problems as problems:
            missing = re.findall(r"no such file: (\S+)", str(problems))
            if not missing:
                raise
            for name in missing:
                Path(name).write_text('{"id": "1", "prompt": "Why?"}\n', encoding="utf-8")
    assert recipe.stages


def test_the_pages_have_recipes_and_fragments() -> None:
    assert len(found) > 45
    assert sum(is_whole(block) for block in found) >= 5


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("rule: {name: no_comma}", "no_comma"),
        ("algorithm: {name: ppo, kl_cof: 0.1}", "kl_cof"),
        ("policy:\n  name: rl\n  train: {lr: fast}", "fast"),
        ("metrics: [rogue]", "rogue"),
        ("evaluate: {evry: 5}", "evry"),
    ],
)
def test_a_wrong_fragment_is_noticed(text: str, wrong: str, rules: dict[str, Any]) -> None:
    (first, *_) = complaints_of_fragment(plain(Block("x", 1, "yaml", text)), rules)
    assert wrong in first
