"""Every recipe and each of its rows resolves to the settings and keys of the snapshot, so finished stages are found again.

A file of the snapshot has one line per component of a recipe, with the settings that count for keys; of a row, the lines that it has
(+) and lacks (-) beside the recipe. `defaults.jsonl` has the version and the defaults of each component: a default is in no key, so one
that changes raises the version. Where a setting, a default or a key changes on purpose, write the snapshot again
(`python tests/recipes/test_snapshot.py`, in an environment with the packages of the tests) and say in the commit why stages are done
anew.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fgrl import registry
from fgrl.experiments.pipeline import plan
from fgrl.experiments.recipe import Recipe, know_components, load, rows
from fgrl.kinds import Stage
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).parent / "snapshot"
DEFAULTS = Path(__file__).parent / "defaults.jsonl"
FILES = sorted([*(ROOT / "recipes").rglob("*.yaml"), *(ROOT / "examples" / "credit").glob("*.yaml")])
STAND_INS = {"vars.sft": "standing-in"}
"""By what a recipe asks its user for: what stands for it here. Any other is a file of marked spans."""


def loaded(address: str) -> Recipe:
    """The recipe in bfloat16, with stand-ins for what its user has to name."""
    try:
        return load(address, ["dtype=bfloat16"])
    except Problems as problems:
        spans = ROOT / "recipes" / "small" / "span_annotations.jsonl"
        return load(address, ["dtype=bfloat16", *(f"{name}={STAND_INS.get(name, spans)}" for name in problems.needs)])


def leaves(value: Any, place: str) -> Iterator[str]:
    """Return one line for each component below a place, with its plain values."""
    items = dict(enumerate(value)) if isinstance(value, list) else value
    inside = {key: item for key, item in items.items() if isinstance(item, dict) or is_nested(item)}
    plain = [
        f"{key}={json.dumps(item, ensure_ascii=False)}"
        for key, item in sorted(items.items(), key=first_name)
        if key not in inside
    ]
    yield f"{place}: {' '.join(plain)}".replace(str(ROOT), "<root>")
    for key, item in inside.items():
        yield from leaves(item, f"{place}.{key}")


def first_name(item: tuple[Any, Any]) -> tuple[bool, str]:
    """Sort by field, the component's name first."""
    return item[0] != "name", str(item[0])


def is_nested(value: Any) -> bool:
    """True for a list that holds components or lists."""
    return isinstance(value, list) and any(isinstance(item, dict | list) for item in value)


def described(address: str) -> dict[str, list[str]]:
    """Return the lines of each stage: its key and the stages that it needs, then its settings."""
    recipe = loaded(address)
    with tempfile.TemporaryDirectory() as folder:
        keys = {stage.name: stage.key for stage in plan(recipe, Path(folder)).stages}
    stages = {"seed": [f"seed: {recipe.seed}"]}
    for name, needs in sorted(recipe.graph().items()):
        settings = registry.dump(recipe.stages[name], for_key=True)
        stages[name] = [
            f"{name}: key {keys[name]}, needs {' '.join(sorted(needs)) or 'nothing'}",
            *leaves(settings, name),
        ]
    return stages


def snapshot(file: Path) -> str:
    """Return the snapshot of a recipe and its rows as text. Settings that stand above it already are named by their row."""
    whole = described(str(file))
    lines = [line for stage in whole.values() for line in stage]
    seen = {tuple(settings): "the recipe" for _, *settings in whole.values()}
    for row in rows(file):
        lines += ["", f"::{row}"]
        stages = described(f"{file}::{row}")
        lines += [f"- {name}" for name in whole if name not in stages]
        for name, (head, *settings) in stages.items():
            before = whole.get(name, [""])
            lines += [f"+ {head}"] if head != before[0] else []
            if settings == before[1:]:
                continue
            if (known := seen.setdefault(tuple(settings), f"::{row}")) != f"::{row}":
                lines.append(f"+ {name}: the settings of {known}")
            else:
                lines += [f"- {line}" for line in before[1:] if line not in settings]
                lines += [f"+ {line}" for line in settings if line not in before]
    return "\n".join(lines) + "\n"


def kept(file: Path) -> Path:
    """Return where the snapshot of a recipe is."""
    return SNAPSHOT / file.relative_to(ROOT).with_suffix(".txt")


Defaults = dict[str, dict[str, Any]]


def defaults() -> Defaults:
    """Return the version and the defaults of each component of fgrl, those of groups of settings in it too."""
    know_components()
    found = {}
    for kind, names in json.loads((ROOT / "fgrl" / "components" / "index.json").read_text(encoding="utf-8")).items():
        for name in sorted(names):
            about = registry.describe(kind, name)
            found[f"{kind} {name}"] = {"version": about["version"], "defaults": dict(fields_with_default(about))}
    return found


def fields_with_default(about: dict[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields that count for keys and have a default, as `train.lr`, with it."""
    for field in about.get("fields", []):
        if field["keyed"]:
            if not field["required"]:
                yield f"{place}{field['name']}", field["default"]
            yield from fields_with_default(field, f"{place}{field['name']}.")


def with_the_old_version(before: Defaults, now: Defaults) -> list[str]:
    """Return the defaults that have changed in components whose version was not raised."""
    return [
        f"{name}: the default of {field} was {old} and is {now[name]['defaults'][field]}: raise `version` of the component, now {one['version']}"
        for name, one in before.items()
        if name in now and now[name]["version"] == one["version"]
        for field, old in one["defaults"].items()
        if now[name]["defaults"].get(field, old) != old
    ]


def committed() -> Defaults:
    """Return the defaults of the snapshot."""
    lines = map(json.loads, DEFAULTS.read_text(encoding="utf-8").splitlines())
    return {line.pop("component"): line for line in lines}


def test_a_default_that_changes_raises_the_version_of_its_component() -> None:
    now = defaults()
    assert with_the_old_version(committed(), now) == []
    assert now == committed(), "a field or a component is new, or a version was raised: write the snapshot again"


def test_a_changed_default_is_found_until_the_version_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from fgrl.components.algorithms.ppo import PPO

    before = defaults()
    monkeypatch.setattr(PPO.model_fields["clip"], "default", 0.3)
    (problem,) = with_the_old_version(before, defaults())
    assert (
        problem
        == "online_algorithm ppo: the default of clip was 0.2 and is 0.3: raise `version` of the component, now 1"
    )
    monkeypatch.setattr(PPO, "version", PPO.version + 1)
    assert with_the_old_version(before, defaults()) == []


@pytest.mark.smollm2
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_recipe_that_spells_out_its_defaults_has_the_same_key(file: Path) -> None:
    for name, stage in loaded(str(file)).stages.items():
        settings = registry.dump(stage)
        if settings.get("max_prompt_tokens", 0) >= settings.get("max_tokens", math.inf):
            del settings["max_prompt_tokens"]  # it is refused where it is spelled out
        spelled_out = registry.build(Stage, settings)
        assert registry.dump(spelled_out, for_key=True) == registry.dump(stage, for_key=True), name


def test_each_recipe_has_a_snapshot() -> None:
    assert sorted(SNAPSHOT.rglob("*.txt")) == sorted(map(kept, FILES))


@pytest.mark.smollm2
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_recipe_has_the_settings_and_keys_of_its_snapshot(file: Path) -> None:
    assert snapshot(file).splitlines() == kept(file).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    if DEFAULTS.exists() and (problems := with_the_old_version(committed(), defaults())):
        raise SystemExit("\n".join(problems))
    DEFAULTS.write_text(
        "".join(json.dumps({"component": name} | one) + "\n" for name, one in defaults().items()),
        encoding="utf-8",
    )
    for file in FILES:
        kept(file).parent.mkdir(parents=True, exist_ok=True)
        kept(file).write_text(snapshot(file), encoding="utf-8")
