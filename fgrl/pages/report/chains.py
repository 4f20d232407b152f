"""Chains of rewrites on the page: the marks on the first response, the changes of each step, and the first response
beside the last one ("Fine-Tuning LLMs with Fine-Grained Human Feedback on Text Spans", Figures 1 and 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fgrl.base.visible import quantity
from fgrl.pages.report import differences
from fgrl.pages.report.differences import Folded, Part
from fgrl.pages.report.drawing import MOST_REASON, Drawing
from fgrl.pages.report.escaping import MOST_CHARACTERS, long, turns
from fgrl.pages.report.marked_tokens import MarkedTokens, recorded
from fgrl.runs.results.text import number
from fgrl.types import Response, Sample

MOST_CHAINS = 6
MOST_STEPS = 12
"""Maximum number of steps per chain."""


@dataclass
class Step:
    """A rewrite beside the response before it."""

    title: str
    addressed: list[Markup]
    """Quotes of the passages that the rewrite addresses."""
    parts: list[Part | Folded]
    facts: list[tuple[str, str]]
    is_unchanged: bool


@dataclass
class Side:
    """The first or the last response, with the text marked that only it has."""

    title: str
    parts: list[Part]
    left_out: int
    """Number of characters at the end that are not drawn."""


@dataclass
class ShownChain:
    """A chain of rewrites as the page shows it."""

    turns: list[tuple[str, Markup]]
    title: str
    first: Drawing
    """The first response with its marks."""
    steps: list[Step]
    more_steps: int
    sides: list[Side]
    facts: list[tuple[str, str]]


def is_chain(sample: Sample) -> bool:
    """Return True if a sample is a chain of rewrites: it has `meta.chain`, and a response for each step."""
    return isinstance(sample.meta.get("chain"), dict) and len(sample.responses) > 1


def chains_section(samples: Iterable[Sample]) -> list[ShownChain]:
    """Return the first chains. No more samples than necessary are read."""
    return list(itertools.islice(map(_shown, filter(is_chain, samples)), MOST_CHAINS))


def verdicts(sample: Sample) -> list[tuple[str, Markup | None]]:
    """Return the comparisons of a sample's responses, in words, with the reason."""
    shown = []
    for verdict in sample.verdicts or []:
        first, second = verdict.first + 1, verdict.second + 1
        text = {
            "first": f"response {first} is better than response {second}",
            "second": f"response {second} is better than response {first}",
            "tie": f"responses {first} and {second} are equally good",
            None: f"the verdict on responses {first} and {second} is missing",
        }[verdict.verdict]
        by = f" ({verdict.by})" if verdict.by else ""
        shown.append((text + by, long(verdict.reason, MOST_REASON) if verdict.reason else None))
    return shown


def _shown(sample: Sample) -> ShownChain:
    responses = sample.responses
    first, last, count = responses[0], responses[-1], len(responses) - 1
    # 1. what was marked on the first response
    item = MarkedTokens("", [], [], text=first.text, annotations=recorded(first))
    drawing = Drawing.of([item], [(None, None)], chain=True)
    # 2. each step beside the one before
    steps = [
        _step(place, count, responses[place - 1].text, responses[place], _addressed(first, place))
        for place in range(1, min(count, MOST_STEPS) + 1)
    ]
    # 3. the first response beside the last one
    compared = differences.parts(first.text, last.text)
    sides = [
        _side(_named("first response", first), compared, "removed", len(first.text)),
        _side(_named("last rewrite", last), compared, "added", len(last.text)),
    ]
    about = sample.meta["chain"]
    facts = [(str(name).replace("_", " "), fact) for name, value in about.items() if (fact := _fact(value))]
    title = f"{quantity(count, 'step')}"
    return ShownChain(
        turns(sample.prompt), title, drawing, steps, max(0, count - MOST_STEPS), sides, _changed(compared) + facts
    )  # fmt: skip


def _step(place: int, count: int, before: str, response: Response, addressed: list[Markup]) -> Step:
    every = differences.parts(before, response.text)
    title = _named(f"step {place} of {count}", response)
    return Step(title, addressed, differences.folded(every), _changed(every), before == response.text)


def _addressed(first: Response, place: int) -> list[Markup]:
    """Return quotes of the passages of the first response that this rewrite addresses."""
    return [long(first.text[span.start : span.end], MOST_REASON) for span in first.spans if span.answered_by == place]


def _side(title: str, compared: Sequence[Part], own: str, length: int) -> Side:
    """Return one of the two texts: the common parts, and the parts that only it has. It is drawn up to
    `MOST_CHARACTERS`.
    """
    room, drawn = MOST_CHARACTERS, []
    for part in compared:
        if part.change in ("same", own) and room > 0:
            drawn.append(Part(part.change, part.text[:room]))
            room -= len(part.text)
    return Side(title, drawn, max(0, length - sum(len(part.text) for part in drawn)))


def _named(what: str, response: Response) -> str:
    return f"{what} · {response.by}" if response.by else what


def _changed(every: Sequence[Part]) -> list[tuple[str, str]]:
    removed, added = (
        sum(differences.words(part.text) for part in every if part.change == change) for change in ("removed", "added")
    )
    return [("words removed", number(removed)), ("words added", number(added))]


def _fact(value: Any) -> str:
    """Return a value of the record as text; empty if it is not a text, a number or a list of these."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_fact, value[:MOST_STEPS])))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else value[:MOST_REASON] if isinstance(value, str) else ""
