"""Recipes that a command may name without a path: `quickstart`, `small/rtt`."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from fgrl.base import files
from fgrl.experiments.recipe.files import Address
from fgrl.registry.problems import nearest

SUFFIX = ".yaml"


def folders() -> list[Path]:
    """Return the folders in which names are looked up: `recipes/` in the current directory, in fgrl's source tree, and
    in an installed wheel.
    """
    candidates = [
        Path("recipes"),
        Path(__file__).resolve().parents[3] / "recipes",
        Path(sysconfig.get_path("data")) / "share" / "fgrl" / "recipes",
    ]
    return [folder for folder in candidates if files.is_folder(folder)]


def shipped_names() -> list[str]:
    """Return the names of all shipped recipes, as `small/rtt`, sorted."""
    return sorted(
        {
            file.relative_to(folder).with_suffix("").as_posix()
            for folder in folders()
            for file in folder.rglob(f"*{SUFFIX}")
        }
    )


def prompt(name: str) -> str:
    """Return the text of one of fgrl's prompt files."""
    places = [folder.parent / "prompts" / name for folder in folders()]
    return next(place for place in places if files.is_file(place)).read_text(encoding="utf-8")


def by_name(address: Path | str) -> Path | None:
    """Return the address `FILE` or `FILE::ROW` of a recipe that is named without its folder; None if no recipe has the
    name.
    """
    given = Address.parse(address)
    if given.file.is_absolute() or ".." in given.file.parts:
        return None
    file = given.file if given.file.suffix == SUFFIX else given.file.with_name(f"{given.file.name}{SUFFIX}")
    found = next((folder / file for folder in folders() if files.is_file(folder / file)), None)
    return None if found is None else Path(str(Address(found, given.row)))


def similar(name: Path | str) -> str | None:
    """Return the recipe that was probably meant: `rtt` is `small/rtt` if no recipe of that name is further up."""
    word = Address.parse(name).file.with_suffix("").as_posix()
    known = shipped_names()
    last = [known_name for known_name in known if known_name.rpartition("/")[2] == word]
    return last[0] if len(last) == 1 else nearest(word, known)
