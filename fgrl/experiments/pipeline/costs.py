"""Costs of stages on a card, computed from an estimate of their memory and work: whether they fit, and the seconds, GPU
hours and dollars that they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fgrl.experiments.recipe.machines import Card
from fgrl.experiments.stages.counting import Work
from fgrl.kinds import Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import walk

GIB = 2**30


def of(estimate: Mapping[str, Any], work: Sequence[Work] | str, card: Card) -> dict[str, Any]:
    """Return the costs of a stage with this estimate and work: `fits` (None if its memory is unknown), `memory` and
    what the card `has`, in bytes; and either `seconds`, `gpu hours`, `usd` and the `parts` of the seconds, or the
    reason why they are `unknown`.
    """
    has = (card.memory - card.reserved) * GIB
    peak, served = estimate["memory"].get("peak"), estimate.get("engine", {}).get("weights", 0)
    needs = None if peak is None else max(peak, served)
    fits = {"card": card.name, "fits": None if needs is None else needs <= has, "memory": needs, "has": round(has)}
    return fits | _time(work, card)


def together(estimates: Iterable[Mapping[str, Any]], card: Card) -> dict[str, float]:
    """Return the total `seconds`, `gpu hours` and `usd` of all stages whose time is known."""
    known = [estimate["costs"]["seconds"] for estimate in estimates if "seconds" in estimate.get("costs", {})]
    return _price(sum(known), card)


def uncounted(stages: Mapping[str, Stage], estimates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the stages that load a model and whose time is unknown."""
    unknown = [name for name in stages if "seconds" not in estimates.get(name, {}).get("costs", {})]
    return [name for name in unknown if any(isinstance(part, ModelSpec) for _path, part in walk(stages[name]))]


def _time(work: Sequence[Work] | str, card: Card) -> dict[str, Any]:
    if isinstance(work, str):
        return {"unknown": work}
    parts: dict[str, float] = {}
    for part in work:
        parts[part.what] = parts.get(part.what, 0) + _seconds(part, card)
    ahead = sum(_seconds(part, card) for part in work if part.ahead)
    return {**_price(max(ahead, sum(parts.values()) - ahead), card), "parts": parts}


def _seconds(part: Work, card: Card) -> float:
    rate = (card.tflops_float32 if part.float32 else card.tflops) * 1e12
    passes = (part.passed / card.passing + part.trained / card.training) / (rate * part.devices)
    sent = card.served_step if part.served else card.layer * part.layers
    reading = card.bandwidth * 1e9 * card.reading
    read, computed, cached = part.read / reading, part.computed / (rate * card.stepping), part.cached / reading
    step = max(sent, max(read, computed) + cached) if card.overlaps else sent + read + computed + cached
    return passes + part.steps * step + part.written / (card.disk * 1e9)


def _price(seconds: float, card: Card) -> dict[str, float]:
    hours = seconds / 3600 * card.count
    return {"seconds": seconds, "gpu hours": hours, "usd": hours * card.usd}
