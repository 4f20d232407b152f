"""Every recipe and each of its rows resolves to the settings and keys of the snapshot, so finished stages are found again.

A file of the snapshot has one line per component of a recipe; of a row, the lines that it has (+) and lacks (-) beside the recipe.
Where a setting or a key changes on purpose, write the snapshot again (`python tests/recipes/test_snapshot.py`, in an environment
with the packages of the tests) and say in the commit why stages are done anew. New fields: see `KeyedUnless`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fgrl import registry
from fgrl.pipeline import plan
from fgrl.recipe import Recipe, load, rows
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).parent / "snapshot"
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


def test_each_recipe_has_a_snapshot() -> None:
    assert sorted(SNAPSHOT.rglob("*.txt")) == sorted(map(kept, FILES))


@pytest.mark.smollm2
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_recipe_has_the_settings_and_keys_of_its_snapshot(file: Path) -> None:
    assert snapshot(file).splitlines() == kept(file).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    for file in FILES:
        kept(file).parent.mkdir(parents=True, exist_ok=True)
        kept(file).write_text(snapshot(file), encoding="utf-8")
