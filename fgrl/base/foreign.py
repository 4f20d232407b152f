"""Names that other toolkits (TRL, OpenRLHF, verl, axolotl) use for our settings, commands and columns:
`foreign_names.yaml`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Names = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Mapping from a name to the fgrl names that it may correspond to, each with the toolkits that use it (empty for fgrl's
own name).
"""


@cache
def table() -> dict[str, Any]:
    """Return the content of the file."""
    import yaml

    text = Path(__file__).with_name("foreign_names.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


@cache
def settings() -> Names:
    """Return our settings by their names in other toolkits. A path (`actor_rollout_ref.rollout.n`) is also found by its
    last part if that contains an underscore. Our own settings are found by their last part (`lr` is `train.lr`).
    """
    found = _by_name("settings")
    for name, ours in list(found.items()):
        if "_" in (last := name.rpartition(".")[2]):
            found.setdefault(last, {}).update(ours)
    for target in table()["settings"]:
        found.setdefault(target.partition(":")[0].rpartition(".")[2], {}).setdefault(target, ())
    return found


@cache
def commands() -> Names:
    """Return our commands by their names in other toolkits."""
    return _by_name("commands")


def columns(role: str) -> tuple[str, ...]:
    """Return the usual names of the column for a role (`prompt`, `messages`, `response`, `chosen`, `rejected`)."""
    return tuple(table()["columns"][role])


def among(name: str, fields: Collection[str]) -> str | None:
    """Return the first of the given fields that a name may refer to; None if there is none."""
    return next((last for path in places(name) if (last := path.rpartition(".")[2]) in fields), None)


def places(name: str) -> list[str]:
    """Return the settings that have this name here or in another toolkit, as paths below a stage."""
    return [target.partition(":")[0] for target in settings().get(name, {})]


def elsewhere(name: str) -> str | None:
    """Return a hint such as `did you mean "model.base" of a stage?  ("base_model" is axolotl's name)`; None for an
    unknown name.
    """
    for target, toolkits in settings().get(name, {}).items():
        top = "at the top of the recipe" if target in ("track", "seed") else "of a stage"
        whose = f'  ("{name}" is the name of {" and ".join(toolkits)})' if toolkits else ""
        return f'did you mean "{target}" {top}?{whose}'
    return None


def _by_name(kind: str) -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for target, by_toolkit in table()[kind].items():
        for toolkit, names in by_toolkit.items():
            for name in [names] if isinstance(names, str) else names:
                ours = found.setdefault(name, {})
                ours[target] = (*ours.get(target, ()), toolkit)
    return found
