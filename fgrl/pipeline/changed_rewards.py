"""Is a reward that is built again the one that a finished stage was made with?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.kinds import Reward
from fgrl.pipeline import keys
from fgrl.registry.problems import Key
from fgrl.results.reading import mapping


def changed_files(reward: Reward, record: Mapping[str, Any], path: Key) -> list[str]:
    """Names of the files of a reward whose content is another one than when a stage was made: files that the reward's settings name,
    and those that a file with functions imports.

    record: `stage.json` of the stage; path: of the reward in the stage's settings.
    """
    then = _at(mapping(record.get("identity")).get("settings"), path)
    changed: dict[str, None] = {}
    for inner, value in [((), reward), *registry.walk(reward)]:
        recorded = _at(then, inner)
        if isinstance(value, Path):
            if isinstance(recorded, Mapping) and recorded.get("sha256") not in (None, keys.sha256(value)):
                changed[value.name] = None
        elif isinstance(value, registry.Settings) and isinstance(recorded, Mapping):
            earlier = recorded.get("corrections") or []
            for before, now in zip_longest(map(str, earlier), value.corrections(), fillvalue=""):
                # `key_of` writes "NAME, FILE sha256, FILE sha256"
                different = set(before.split(", ")) ^ set(now.split(", "))
                changed |= dict.fromkeys(text.rpartition(" ")[0] for text in sorted(different) if ".py " in text)
    return list(changed)


def warning(stage: str, files: list[str]) -> str:
    """What to say of `changed_files`."""
    names = ", ".join(files)
    have = "have" if len(files) > 1 else "has"
    return f"{names} {have} changed since stage {stage} was made: the reward is computed by the present code"


def _at(settings: Any, path: Key) -> Any:
    """`settings[path]`; None where there is none."""
    for part in path:
        if isinstance(settings, Mapping):
            settings = settings.get(part)
        elif isinstance(settings, list) and isinstance(part, int) and part < len(settings):
            settings = settings[part]
        else:
            return None
    return settings
