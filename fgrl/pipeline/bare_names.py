"""Names of runs, stages and shipped recipes that are given without their folder: `quickstart`, `policy`,
`quickstart:policy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fgrl import files
from fgrl import recipe as recipes
from fgrl.errors import UsageError
from fgrl.pipeline.folders import Runs
from fgrl.recipe import Address
from fgrl.results.records import is_done

MOST_LISTED = 8


def with_folder(word: str, runs: Path) -> str:
    """Return the word with the path of the recipe, run or stage that it names; unchanged if it is a path or names
    nothing.

    A recipe that `fgrl run` finds by its name goes before runs and stages. Raises `UsageError` where several runs and
    stages have the name.
    """
    if files.exists(Address.parse(word).file):
        return word
    source, colon, stage = word.rpartition(":")
    named = ((word, "", True), (source, f":{stage}", False)) if colon and stage and source else ((word, "", True),)
    for name, rest, may_be_stage in named:
        recipe = None if name.endswith(":") else recipes.by_name(name)
        if recipe is not None:
            return f"{recipe}{rest}"
        places = [*_runs(name, Runs(runs)), *(_stages(name, Runs(runs)) if may_be_stage else ())]
        if len(places) > 1:
            raise UsageError(
                f"{name}: {len(places)} runs and stages have this name; name one by its folder: {_listed(places)}"
            )
        if places:
            return f"{places[0]}{rest}"
    return word


def _runs(name: str, runs: Runs) -> Iterator[Path]:
    """Folders of runs, newest first: all of the recipe's folder `name`, or the one that is called so itself."""
    if not _is_bare(name) or not runs.root.is_dir():
        return
    yield from runs.invocations(name)
    for recipe in sorted(runs.root.iterdir()):
        yield from (folder for folder in runs.invocations(recipe.name) if folder.name == name)


def _stages(name: str, runs: Runs) -> Iterator[Path]:
    """Folders of finished stages of this name, newest first, or the one folder that is called so itself."""
    if _is_bare(name) and runs.stages.is_dir():
        folders = [each for each in runs.stages.glob("*-*") if name in (each.name, each.name.rpartition("-")[0])]
        yield from sorted(filter(is_done, folders), key=lambda folder: folder.stat().st_mtime, reverse=True)


def _is_bare(name: str) -> bool:
    return bool(name) and "/" not in name and ":" not in name and not name.startswith(".")


def _listed(places: Sequence[Path]) -> str:
    more = f" and {len(places) - MOST_LISTED} more (fgrl runs)" if len(places) > MOST_LISTED else ""
    return ", ".join(map(str, places[:MOST_LISTED])) + more
