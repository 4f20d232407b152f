"""What other toolkits (TRL, OpenRLHF, verl, axolotl) call our settings, commands and columns: `foreign_names.yaml`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Names = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By a name: what it may be here, each with the toolkits that call it so (none for our own name)."""


@cache
def table() -> dict[str, Any]:
    """Return the file."""
    import yaml

    text = Path(__file__).with_name("foreign_names.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


@cache
def settings() -> Names:
    """Return our settings by their names. A path (`actor_rollout_ref.rollout.n`) is found by its last part, too, where
    that has an underscore; ours by their last part (`lr` is `train.lr`).
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
    """Return our commands by theirs."""
    return _by_name("commands")


def columns(role: str) -> tuple[str, ...]:
    """Return the usual names of the column of a role (`prompt`, `messages`, `response`, `chosen`, `rejected`)."""
    return tuple(table()["columns"][role])


def among(name: str, fields: Collection[str]) -> str | None:
    """Return which of the fields of settings is meant by a name."""
    return next((last for path in places(name) if (last := path.rpartition(".")[2]) in fields), None)


def places(name: str) -> list[str]:
    """Return where a setting may be that has this name here or elsewhere, as paths below a stage."""
    return [target.partition(":")[0] for target in settings().get(name, {})]


def elsewhere(name: str) -> str | None:
    """`did you mean "model.base" of a stage?  ("base_model" is axolotl's name)`; None for a name that is not known."""
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
