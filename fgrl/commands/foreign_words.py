"""Suggestions of fgrl's commands and options for those of other toolkits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fgrl.base import foreign


def command_meant(words: Sequence[str]) -> str | None:
    """Return the command to type in place of one that does not exist; None if no counterpart is known."""
    first, *rest = words
    if first.endswith((".yaml", ".yml")) or ".yaml::" in first:
        return f"fgrl run {' '.join(words)}"
    ours = next(iter(foreign.commands().get(first, ())), None)
    given = rest[0] if rest and not rest[0].startswith("-") else "RECIPE"
    return None if ours is None else f"fgrl {ours.replace('RECIPE', given)}"


def option_meant(option: str, options: Collection[str]) -> str | None:
    """Return the option of a command that corresponds to the name of a setting: `--model` for `--model_name_or_path`."""
    names = [f"--{part.replace('_', '-')}" for path in foreign.places(option.lstrip("-")) for part in path.split(".")]
    return next((name for name in [*names, *(["--data"] if "--prompts" in names else [])] if name in options), None)
