"""Changes of the files of a reward since a finished stage was made with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.experiments.pipeline import keys
from fgrl.kinds import Reward
from fgrl.registry import outside
from fgrl.registry.problems import Key
from fgrl.runs.results.differing import inside


def changed_files(reward: Reward, identity: Mapping[str, Any], path: Key) -> list[str]:
    """Return the names of the files of a reward whose content has changed since a stage was made: files that the
    reward's settings name, files that a Python file of functions imports, and files of the recipe's `imports` that
    define the reward or a component in it.

    identity: the identity of the stage. path: the path of the reward in the stage's settings.
    """
    then = reduce(inside, path, identity.get("settings"))
    changed: dict[str, None] = dict.fromkeys(_changed_imports(reward, identity))
    for place, value in [((), reward), *registry.walk(reward)]:
        recorded = reduce(inside, place, then)
        if isinstance(value, Path):
            if isinstance(recorded, Mapping) and recorded.get("sha256") not in (None, keys.sha256(value)):
                changed[value.name] = None
        elif isinstance(value, registry.Settings) and isinstance(recorded, Mapping):
            earlier = recorded.get("behind") or []
            for before, now in zip_longest(map(str, earlier), value.behind(), fillvalue=""):
                # `key_of` writes "NAME, FILE sha256, FILE sha256"
                different = set(before.split(", ")) ^ set(now.split(", "))
                changed |= dict.fromkeys(text.rpartition(" ")[0] for text in sorted(different) if ".py " in text)
    return list(changed)


def _changed_imports(reward: Reward, identity: Mapping[str, Any]) -> list[str]:
    """Return the names of the imported files with the reward's code, and of the files beside them that they import,
    whose content the stage did not record. An identity without sources is from a stage that used no imported file, so
    nothing is known about the files of its rewards.
    """
    recorded = set(identity.get("sources", {}).values())
    if not recorded:
        return []
    now = outside.imported()
    components = [reward, *(value for _, value in registry.walk(reward) if isinstance(value, registry.Settings))]
    modules = {sys.modules.get(cls.__module__) for component in components for cls in type(component).__mro__}
    defining = {Path(file) for module in modules if (file := getattr(module, "__file__", None))} & now.keys()
    files = sorted(defining.union(*map(outside.used_by, defining)))
    return [file.name for file in files if (now[file] if file in now else _digest(file)) not in recorded]


def _digest(file: Path) -> str | None:
    """Return the sha256 of a file, or None if the file was removed."""
    return keys.sha256(file) if file.is_file() else None


def warning(stage: str, files: list[str]) -> str:
    """Return a warning about `changed_files`."""
    names = ", ".join(files)
    have = "have" if len(files) > 1 else "has"
    return f"{names} {have} changed since stage {stage} was made: the reward is computed by the present code"
