"""The recipes of span feedback resolve to the settings that they had when the snapshot was taken, and find the stages finished since.

Where a setting or a key changes on purpose, take the snapshot again (`python tests/recipes/test_span_feedback_snapshot.py`, in an
environment with the packages of the tests) and say in the commit why stages are done anew. New fields: see `KeyedUnless`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recipe_snapshot import FOLDER, PARTS, ROOT, addresses, read, taken, write

from fgrl.recipe import Recipe, load
from fgrl.registry import Problems

FILE = FOLDER / "span_feedback.json.gz"
STAND_IN = ROOT / "recipes" / "small" / "span_annotations.jsonl"
ADDRESSES = addresses("span_chains*.yaml")
SNAPSHOT = read(FILE)


def loaded(address: str) -> Recipe:
    """The recipe, with stand-ins for the files that its user has to name."""
    try:
        return load(f"{ROOT}/{address}")
    except Problems as problems:
        return load(f"{ROOT}/{address}", [f"{name}={STAND_IN}" for name in problems.needs])


def test_the_snapshot_has_every_recipe() -> None:
    assert len(SNAPSHOT) == 21
    assert sorted(SNAPSHOT) == sorted(ADDRESSES)


@pytest.mark.parametrize("address", SNAPSHOT)
def test_a_recipe_has_the_settings_and_keys_of_the_snapshot(address: str, tmp_path: Path) -> None:
    then, today = SNAPSHOT[address], json.loads(json.dumps(taken(loaded(address), tmp_path)))
    for part in PARTS:
        assert today[part] == then[part], f"{address}: {part}"


if __name__ == "__main__":
    write(FILE, ADDRESSES, loaded)
