"""Settings in which recipes differ: all differences including defaults, or short labels for runs of one recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fgrl.runs.results.evaluations import RecipeResults

ABSENT = "–"
MOST_IN_LABEL = 3
DESCRIPTIONS = ("about", "extends", "vars")
"""Parts of a recipe that are not settings: variables appear where they are used."""
NOT_COMPARED = ("name", "version")
_NOTHING: Any = object()


@dataclass
class Differing:
    """Setting with its value in every recipe, as text."""

    key: str
    values: list[str]
    """Values in the order of the recipes; `ABSENT` for a recipe without the setting."""


def differing(
    built: Sequence[Mapping[str, Mapping[str, Any]]], written: Sequence[Mapping[str, Any]] | None = None
) -> list[Differing]:
    """Return the settings that are not the same in all recipes.

    built: stages of each recipe by name, as `registry.dump` returns them. written: the same stages as written in the
    recipe, without the defaults. If two components are of different kinds, each is shown as it was written, and not
    field by field.
    """
    written = [{}] * len(built) if written is None else written
    result: list[Differing] = []
    for stage in dict.fromkeys(name for stages in built for name in stages):
        values = [stages.get(stage, _NOTHING) for stages in built]
        names = [_name(value) for value in values]
        as_written = [inside(stages, stage) for stages in written]
        if len(set(names)) == 1:
            _walk(stage, values, as_written, result)
            continue
        result.append(Differing(stage, [name or ABSENT for name in names]))
        if _NOTHING not in values:  # two kinds of stages: the settings that both have
            shared = [key for key in values[0] if all(key in value for value in values) and key not in NOT_COMPARED]
            for key in shared:
                inner = [inside(value, key) for value in as_written]
                _walk(f"{stage}.{key}", [value[key] for value in values], inner, result)
    return result


def labels(results: Sequence[RecipeResults]) -> list[str]:
    """Return for each result the settings in which it differs from others of its recipe: `kl_coef 0.01`; empty if it
    does not differ.
    """
    texts = []
    for each in results:
        others = [other.settings for other in results if other.recipe == each.recipe]
        differing = [
            path for path, value in each.settings.items() if any(other.get(path, _NOTHING) != value for other in others)
        ]
        parts = dict.fromkeys(f"{path.rsplit('.', 1)[-1]} {_short(each.settings[path])}" for path in differing)
        texts.append(", ".join(list(parts)[:MOST_IN_LABEL]))
    return texts


def leaves(recipe: Any, path: str = "") -> dict[str, Any]:
    """Return every value of a recipe's plain data by its dotted path."""
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


def _walk(path: str, values: Sequence[Any], written: Sequence[Any], result: list[Differing]) -> None:
    if all(value is not _NOTHING and value == values[0] for value in values):
        return
    if all(isinstance(value, Mapping) for value in values) and len({_name(value) for value in values}) == 1:
        for key in dict.fromkeys(key for value in values for key in value if key != "version"):
            inner = [value.get(key, _NOTHING) for value in values]
            _walk(f"{path}.{key}", inner, [inside(value, key) for value in written], result)
    elif all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        for index in range(len(values[0])):
            inner = [value[index] for value in values]
            _walk(f"{path}.{index}", inner, [inside(value, index) for value in written], result)
    else:
        result.append(Differing(path, [_brief(*pair) for pair in zip(values, written, strict=True)]))


def inside(value: Any, key: Any) -> Any:
    """Return the entry of a mapping or a list at `key`; None if there is no such entry."""
    if isinstance(value, list):
        return value[key] if isinstance(key, int) and key < len(value) else None
    return value.get(key) if isinstance(value, Mapping) else None


def _name(value: Any) -> str:
    return str(value["name"]) if isinstance(value, Mapping) and "name" in value else ""


def _brief(value: Any, written: Any) -> str:
    """Return a value on one line; a component as it was written, or only its name if its settings were not written."""
    if value is _NOTHING:
        return ABSENT
    if isinstance(value, Mapping) and "name" in value:
        own = written if isinstance(written, Mapping) and len(written) > 1 else None
        return _flow(own) if own else str(value["name"])
    if isinstance(value, list):
        pairs = [(item, inside(written, place)) for place, item in enumerate(value)]
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
