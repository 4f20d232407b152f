"""The recipes of span feedback resolve to the settings that they had when the snapshot was taken, and find the stages finished since.

Where a setting or a key changes on purpose, take the snapshot again (`python tests/recipes/test_span_feedback_snapshot.py`, in an
environment with the packages of the tests) and say in the commit why stages are done anew. New fields: see `KeyedUnless`.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fgrl.pipeline import plan
from fgrl.recipe import load, rows
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).parent / "snapshot" / "span_feedback.json.gz"
STAND_IN = ROOT / "recipes" / "small" / "span_annotations.jsonl"
"""For the files that a recipe's user has to name."""


def addresses() -> list[str]:
    """Every file of span feedback beside `recipes/small`, and each of its rows."""
    files = sorted((ROOT / "recipes").glob("span_chains*.yaml"))
    return [f"recipes/{path.name}{row}" for path in files for row in ("", *(f"::{row}" for row in rows(path)))]


def taken(address: str, runs: Path) -> dict[str, Any]:
    """What the snapshot has of a recipe: seed, graph, settings and keys of its stages."""
    sys.path.insert(0, str(Path(__file__).parent))
    from test_snapshot import settings

    try:
        recipe = load(f"{ROOT}/{address}")
    except Problems as problems:
        recipe = load(f"{ROOT}/{address}", [f"{name}={STAND_IN}" for name in problems.needs])
    return {
        "seed": recipe.seed,
        "graph": {name: sorted(needs) for name, needs in recipe.graph().items()},
        "settings": {name: settings(stage) for name, stage in recipe.stages.items()},
        "keys": {stage.name: stage.key for stage in plan(recipe, runs).stages},
    }


SNAPSHOT: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else {}


def test_the_snapshot_has_every_recipe() -> None:
    assert len(SNAPSHOT) == 21
    assert sorted(SNAPSHOT) == sorted(addresses())


@pytest.mark.parametrize("address", SNAPSHOT)
def test_a_recipe_has_the_settings_and_keys_of_the_snapshot(address: str, tmp_path: Path) -> None:
    then, today = SNAPSHOT[address], json.loads(json.dumps(taken(address, tmp_path)))
    for part in ("seed", "graph", "settings", "keys"):
        assert today[part] == then[part], f"{address}: {part}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = {address: taken(address, Path(folder)) for address in addresses()}
    FILE.write_bytes(gzip.compress(json.dumps(made, sort_keys=True).encode(), mtime=0))
