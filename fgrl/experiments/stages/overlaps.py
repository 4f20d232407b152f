"""Held-out prompts that trainings of the same recipe read, found while a plan is made, if all data are small local
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError, NotYet
from fgrl.kinds import Peek, Reader, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring.overlap import HeldOutItem, seen
from fgrl.types import Ref

trained_prompts = lazy.load("fgrl.rollouts.trained_prompts")

MOST_BYTES = 8 * 2**20
"""Upper bound on the bytes in the files of a reader that a plan reads."""


def in_plan(models: Mapping[str, ModelSpec], held_out: Reader, peek: Peek) -> dict[str, str]:
    """Return a phrase for each model of an evaluation that the recipe trains on some of its prompts, with their number,
    for a plan; {} if there is no such model, or if data other than small local files would have to be read.
    """
    return _reported({name: _of_model(spec, peek) for name, spec in models.items()}, held_out, peek)


def in_training(stage: Any, peek: Peek) -> dict[str, str]:
    """Return the same as `in_plan` for the held-out prompts that a training stage evaluates on."""
    sets = stage.evaluate.sets if stage.evaluate is not None else {}
    reports: dict[str, str] = {}
    for name, settings in sets.items():
        reports |= _reported({f"the model of evaluate.sets.{name}": _of_stage(stage, peek)}, settings.prompts, peek)
    return reports


def _reported(known: Mapping[str, frozenset[int]], held_out: Reader, peek: Peek) -> dict[str, str]:
    if not any(known.values()) or not held_out.in_local_files(MOST_BYTES):
        return {}
    try:
        held_out.setup(peek)
        items = [HeldOutItem.of(None, sample.prompt) for sample in held_out.read()]
    except (DataError, NotYet):  # the stage reports it when it reads them
        return {}
    overlaps = {name: words for name, digests in known.items() if (words := seen(items, digests))}
    if not overlaps:
        return {}
    return {"overlap": "; ".join(f"{name} is trained on {words}" for name, words in overlaps.items())}


def _of_model(spec: ModelSpec, peek: Peek) -> frozenset[int]:
    if not isinstance(spec.base, Ref):
        return frozenset()
    try:
        return _of_stage(peek.stage(spec.base), peek)
    except NotYet:
        return frozenset()


def _of_stage(stage: Stage, peek: Peek) -> frozenset[int]:
    """Return the digests of the prompts that a training stage and the stages before it read, if their files are small
    and local.
    """
    made = stage.makes_model()
    reader = getattr(stage, "prompts", None) or getattr(stage, "data", None)
    if made is None or not isinstance(reader, Reader):
        return frozenset()
    known = _of_model(made.start, peek)
    if not reader.in_local_files(MOST_BYTES):
        return known
    pairs = getattr(getattr(stage, "algorithm", None), "data", "") == "pairs"
    try:
        reader.setup(peek)
        prompts = [row.prompt for row in (reader.pairs() if pairs else reader.read())]
    except (DataError, NotYet):  # the stage reports it when it reads them
        return known
    kept = len(prompts) - round(getattr(stage, "holdout", 0.0) * len(prompts))
    return known.union(digest for prompt in prompts[:kept] for digest in trained_prompts.digests(prompt))
