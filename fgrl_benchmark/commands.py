"""Actions of `fgrl benchmark`, without its texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl.base.console import Console
from fgrl_benchmark import checking, comparisons, figure, own_method, ranking, standing
from fgrl_benchmark.checking import Finding as Finding
from fgrl_benchmark.sheet import sheet_of
from fgrl_benchmark.standing import Standing, as_json, text_of
from fgrl_benchmark.worlds import WORDS

check = checking.check
__all__ = ["Finding", "Standing", "check", "draw", "rank", "summary", "text_of"]


def rank(
    word: str, *, name: str | None, told: str, knob: str, turns: bool, overrides: Sequence[str], again: bool, runs: str, jobs: int,
    console: Console,
) -> Standing:  # fmt: skip
    """Tune and test a method, and return its standing. Runs that have a line in its file are not repeated."""
    method = own_method.bring(word, name=name, told=told, knob=knob, turns=turns, overrides=overrides)
    sheet = sheet_of(method, again=again)
    ranking.rank(method, sheet, runs=runs, jobs=jobs, console=console)
    return standing.standing_of(sheet)


def draw(place: Standing) -> Path | None:
    """Draw a method among the others, beside its lines. Return None if no run has measured the place of its credit."""
    world, target = place.world, place.sheet.file.with_suffix(".svg")
    if not any(place.name in comparisons.with_credit(methods, world.quality) for methods in place.found.values()):
        return None
    mistakes = comparisons.made_worse() if world is WORDS else {}
    return figure.draw(target, place.found, mistakes, world.quality, own=place.name)


def summary(place: Standing) -> dict[str, Any]:
    """Return the standing of a method and the files that were written, for a program. The figure is drawn."""
    drawn = draw(place)
    return as_json(place) | {"lines": str(place.sheet.file), "figure": None if drawn is None else str(drawn)}
