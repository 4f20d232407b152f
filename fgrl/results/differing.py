"""Settings in which recipes differ: all of them with their defaults, or short labels for runs of one recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fgrl.results.evaluations import RecipeResults

ABSENT = "–"
MOST_IN_LABEL = 3
DESCRIPTIONS = ("about", "extends", "vars")
"""Parts of a recipe that are no settings: variables appear where they are used."""
_NOTHING: Any = object()


@dataclass
class Differing:
    """A setting with its value in every recipe, for the eyes."""

    key: str
    values: list[str]
    """In the order of the recipes; `ABSENT` where there is no such setting."""


def differing(
    built: Sequence[Mapping[str, Mapping[str, Any]]], written: Sequence[Mapping[str, Any]] | None = None
) -> list[Differing]:
    """What is not the same in all recipes.

    built: of each recipe its stages by name, as `registry.dump` gives them. written: the same stages as the recipe has them,
    without the defaults: where two components differ in kind, each is shown as it was written, and not field by field.
    """
    written = [{}] * len(built) if written is None else written
    found: list[Differing] = []
    for stage in dict.fromkeys(name for one in built for name in one):
        stages = [one.get(stage, _NOTHING) for one in built]
        names = [_name(one) for one in stages]
        if len(set(names)) == 1:
            _walk(stage, stages, [_inside(one, stage) for one in written], found)
            continue
        found.append(Differing(stage, [name or ABSENT for name in names]))
        if _NOTHING not in stages:  # two kinds of stages: the settings that both have
            shared = [key for key in stages[0] if all(key in one for one in stages) and key not in ("name", "version")]
            for key in shared:
                inner = [_inside(_inside(one, stage), key) for one in written]
                _walk(f"{stage}.{key}", [one[key] for one in stages], inner, found)
    return found


def labels(results: Sequence[RecipeResults]) -> list[str]:
    """Of each, the settings in which it differs from others of its recipe: `kl_coef 0.01`; empty where it does not."""
    texts = []
    for one in results:
        others = [other.settings for other in results if other.recipe == one.recipe]
        differing = [
            path for path, value in one.settings.items() if any(other.get(path, _NOTHING) != value for other in others)
        ]
        parts = [f"{path.rsplit('.', 1)[-1]} {_short(one.settings[path])}" for path in differing[:MOST_IN_LABEL]]
        texts.append(", ".join(parts))
    return texts


def leaves(recipe: Any, path: str = "") -> dict[str, Any]:
    """Every value of a recipe's plain data by its dotted path."""
    if not isinstance(recipe, Mapping) or not recipe:
        return {path: recipe}
    values: dict[str, Any] = {}
    for key, inner in recipe.items():
        if path or key not in DESCRIPTIONS:
            values |= leaves(inner, f"{path}.{key}" if path else str(key))
    return values


def _short(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:g}"
    return "null" if value is None else str(value)


def _walk(path: str, values: Sequence[Any], written: Sequence[Any], found: list[Differing]) -> None:
    if all(value is not _NOTHING and value == values[0] for value in values):
        return
    if all(isinstance(value, Mapping) for value in values) and len({_name(value) for value in values}) == 1:
        for key in dict.fromkeys(key for value in values for key in value if key != "version"):
            inner = [value.get(key, _NOTHING) for value in values]
            _walk(f"{path}.{key}", inner, [_inside(one, key) for one in written], found)
    elif all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        for index in range(len(values[0])):
            inner = [value[index] for value in values]
            _walk(f"{path}.{index}", inner, [_inside(one, index) for one in written], found)
    else:
        found.append(Differing(path, [_brief(*pair) for pair in zip(values, written, strict=True)]))


def _inside(value: Any, key: Any) -> Any:
    if isinstance(value, list):
        return value[key] if isinstance(key, int) and key < len(value) else None
    return value.get(key) if isinstance(value, Mapping) else None


def _name(value: Any) -> str:
    return str(value["name"]) if isinstance(value, Mapping) and "name" in value else ""


def _brief(value: Any, written: Any) -> str:
    """A value on one line; a component as it was written, by its name alone when its settings were not."""
    if value is _NOTHING:
        return ABSENT
    if isinstance(value, Mapping) and "name" in value:
        inside = written if isinstance(written, Mapping) and len(written) > 1 else None
        return _flow(inside) if inside else str(value["name"])
    if isinstance(value, list):
        pairs = [(item, _inside(written, place)) for place, item in enumerate(value)]
        return f"[{', '.join(_brief(*pair) for pair in pairs)}]"
    return _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else str(value)
    return str(value).removeprefix(f"{Path.cwd()}/")
