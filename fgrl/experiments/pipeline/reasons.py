"""Reasons in words why a stage runs or does not run: the changes since the most similar finished stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fgrl.experiments.pipeline import keys
from fgrl.runs.records import StageRecord

SHOWN = 3
"""Maximum number of changes that a reason names; more are only counted."""
_MISSING = object()


def cached(record: StageRecord) -> str:
    """Return the reason why a finished stage does not run again."""
    return f"cached (made by {record.recipe} on {record.made[:10]})"


def to_run(
    name: str,
    component: str,
    identity: keys.Identity,
    upstream: Mapping[str, str],
    finished: Sequence[StageRecord],
) -> str:
    """Return the reason why a stage that was never started runs.

    upstream: names of the stages that it refers to, by their key. finished: the stages to compare with, which are the
    stages of the same recipe and of the recipes that it extends. Differences to an unrelated recipe explain nothing.
    """
    candidates = [record for record in finished if record.component == component]
    if not candidates:
        return "new"
    ours = dict(keys.leaves(identity))

    def differences(other: StageRecord) -> list[str]:
        theirs = dict(keys.leaves(other.identity))
        return [path for path in {**ours, **theirs} if ours.get(path, _MISSING) != theirs.get(path, _MISSING)]

    # the fewest differences; of equals, a stage of the same name
    closest = min(candidates, key=lambda other: (len(differences(other)), other.name != name))
    changed = differences(closest)
    if len(changed) > max(SHOWN, len(ours) // 2):
        return "new"
    theirs = dict(keys.leaves(closest.identity))
    return _changes(name, changed, ours, theirs, upstream, f"{closest.name}-{closest.key}")


def setting(stage: str, path: str) -> str:
    """Return the key of the recipe that a path inside an identity stands for."""
    part, _, inside = path.partition(".")
    return f"stages.{stage}.{inside}" if part in ("settings", "data") else path


def _changes(
    name: str,
    changed: Sequence[str],
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    upstream: Mapping[str, str],
    closest: str,
) -> str:
    reasons: dict[str, None] = {}  # in order, each once
    values: list[str] = []
    for path in changed:
        now, before = ours.get(path, _MISSING), theirs.get(path, _MISSING)
        place = setting(name, path)
        kind = keys.place(now)
        if kind == "product" and keys.place(before) == "product":
            reasons[f"upstream {upstream[now['product']]} changed"] = None
        elif kind in ("sha256", "weights") and keys.place(before) == kind:
            reasons[f"{'contents' if kind == 'sha256' else 'weights'} of {place} changed"] = None
        elif path.startswith("sources"):
            reasons["source of imported files changed"] = None
        elif path.startswith("definitions."):
            reasons[f"source of {path.removeprefix('definitions.').removeprefix('__main__.')} changed"] = None
        else:
            left_out = "default" if path.startswith("settings.") else "absent"
            values.append(f"{place} ({_text(before, left_out)} -> {_text(now, left_out)})")
    if values:
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        reasons[f"changed: {', '.join(values[:SHOWN])}{more} against {closest}"] = None
    return "; ".join(reasons)


def _text(value: Any, left_out: str) -> str:
    if value is _MISSING:
        return left_out
    if kind := keys.place(value):
        return f"{kind} {str(value[kind])[:16]}"
    return "null" if value is None else str(value)
