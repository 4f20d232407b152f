"""Snapshots of recipes: the settings and keys that their stages had."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from test_snapshot import settings

from fgrl.pipeline import plan
from fgrl.recipe import Recipe, rows

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "snapshot"
PARTS = ("seed", "graph", "settings", "keys")


def addresses(pattern: str) -> list[str]:
    """Every file beside `recipes/small` whose name fits, and each of its rows."""
    files = sorted((ROOT / "recipes").glob(pattern))
    return [f"recipes/{path.name}{row}" for path in files for row in ("", *(f"::{row}" for row in rows(path)))]


def taken(recipe: Recipe, runs: Path) -> dict[str, Any]:
    """What a snapshot has of a recipe: seed, graph, settings and keys of its stages."""
    return {
        "seed": recipe.seed,
        "graph": {name: sorted(needs) for name, needs in recipe.graph().items()},
        "settings": {name: settings(stage) for name, stage in recipe.stages.items()},
        "keys": {stage.name: stage.key for stage in plan(recipe, runs).stages},
    }


def read(file: Path) -> dict[str, Any]:
    """A snapshot by address; empty where there is none."""
    return json.loads(gzip.decompress(file.read_bytes())) if file.exists() else {}


def write(file: Path, addresses: Iterable[str], loaded: Callable[[str], Recipe]) -> None:
    """Take the snapshot again."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = {address: taken(loaded(address), Path(folder)) for address in addresses}
    file.write_bytes(gzip.compress(json.dumps(snapshot, sort_keys=True).encode(), mtime=0))
