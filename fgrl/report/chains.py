"""Chains of rewrites on the page: what was marked on the first response, what each step changed, and the first response beside
the last one ("Fine-Tuning LLMs with Fine-Grained Human Feedback on Text Spans", Figures 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fgrl.report import differences
from fgrl.report.differences import Folded, Part
from fgrl.report.escaping import MOST_CHARACTERS, long, turns
from fgrl.report.marks import MOST_REASON, ShownAnnotation, annotations_of_response
from fgrl.results.reading import mapping
from fgrl.results.text import number

MOST_CHAINS = 6
MOST_STEPS = 12
"""Of a chain."""


@dataclass
class Step:
    """A rewrite beside the response before it."""

    title: str
    addressed: list[Markup]
    """Quotes of the passages that it addresses."""
    parts: list[Part | Folded]
    facts: list[tuple[str, str]]
    is_unchanged: bool


@dataclass
class Side:
    """The first or the last response, with what only it has marked."""

    title: str
    parts: list[Part]
    left_out: int
    """Characters at the end that are not drawn."""


@dataclass
class ShownChain:
    turns: list[tuple[str, Markup]]
    title: str
    annotations: list[ShownAnnotation]
    """Of the first response."""
    steps: list[Step]
    more_steps: int
    sides: list[Side]
    facts: list[tuple[str, str]]


@dataclass
class ShownVerdict:
    """Who found which response better, and why."""

    words: str
    reason: Markup | None


def is_chain(line: Mapping[str, Any]) -> bool:
    """Is a sample's line a chain of rewrites: `meta.chain`, and a response for each step?"""
    return isinstance(mapping(line.get("meta")).get("chain"), dict) and len(_responses(line)) > 1


def chains_section(lines: Iterable[Mapping[str, Any]]) -> list[ShownChain]:
    """The first chains. Reads no further than it has to."""
    chains: list[ShownChain] = []
    for line in lines:
        if is_chain(line):
            chains.append(_shown(line))
            if len(chains) == MOST_CHAINS:
                break
    return chains


def verdicts(line: Mapping[str, Any]) -> list[ShownVerdict]:
    """The comparisons of a sample's responses, in words."""
    recorded = line.get("verdicts")
    shown = []
    for item in recorded if isinstance(recorded, list) else []:
        verdict = mapping(item)
        first, second = verdict.get("first"), verdict.get("second")
        if type(first) is not int or type(second) is not int:
            continue
        names = {"first": (first, second), "second": (second, first)}
        decided = str(verdict.get("verdict"))
        if decided in names:
            better, worse = names[decided]
            text = f"response {better + 1} is better than response {worse + 1}"
        elif decided == "tie":
            text = f"responses {first + 1} and {second + 1} are equally good"
        else:
            text = f"the verdict on responses {first + 1} and {second + 1} is missing"
        by = f" ({verdict['by']})" if verdict.get("by") else ""
        reason = verdict.get("reason")
        shown.append(ShownVerdict(text + by, long(reason, MOST_REASON) if reason else None))
    return shown


def _responses(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    recorded = line.get("responses")
    return [mapping(response) for response in recorded] if isinstance(recorded, list) else []


def _shown(line: Mapping[str, Any]) -> ShownChain:
    responses = _responses(line)
    texts = [str(response.get("text") or "") for response in responses]
    count = len(texts) - 1
    # 1. what was marked on the first response
    first = responses[0]
    annotations = annotations_of_response(first, lambda place: f"addressed in step {place}")
    # 2. each step beside the one before
    steps = [
        _step(place, count, texts[place - 1], texts[place], responses[place], _addressed(first, place))
        for place in range(1, min(count, MOST_STEPS) + 1)
    ]
    # 3. the first response beside the last one
    compared = differences.parts(texts[0], texts[-1])
    names = [_named("first response", first), _named("last rewrite", responses[-1])]
    sides = [
        _side(name, compared, own, len(text))
        for name, own, text in zip(names, ("removed", "added"), (texts[0], texts[-1]), strict=True)
    ]
    about = mapping(mapping(line.get("meta")).get("chain"))
    facts = [(str(name).replace("_", " "), fact) for name, value in about.items() if (fact := _fact(value))]
    title = f"{count} step{'s' * (count > 1)}"
    return ShownChain(
        turns(line.get("prompt")), title, annotations, steps, max(0, count - MOST_STEPS), sides, _changed(compared) + facts
    )  # fmt: skip


def _step(
    place: int, count: int, before: str, after: str, response: Mapping[str, Any], addressed: list[Markup]
) -> Step:
    every = differences.parts(before, after)
    by = f" · {response['by']}" if response.get("by") else ""
    return Step(f"step {place} of {count}{by}", addressed, differences.folded(every), _changed(every), before == after)


def _addressed(first: Mapping[str, Any], place: int) -> list[Markup]:
    """Quotes of the passages of the first response that this rewrite addresses."""
    text, quotes = str(first.get("text") or ""), []
    annotations = first.get("annotations")
    for annotation in annotations if isinstance(annotations, list) else []:
        spans = mapping(annotation).get("spans")
        for span in map(mapping, spans if isinstance(spans, list) else []):
            start, end = span.get("start"), span.get("end")
            if span.get("answered_by") == place and type(start) is int and type(end) is int:
                quotes.append(long(text[start:end], MOST_REASON))
    return quotes


def _side(title: str, compared: Sequence[Part], own: str, length: int) -> Side:
    """One of the two texts: what is in both, and what only it has. It is drawn up to `MOST_CHARACTERS`."""
    room, drawn = MOST_CHARACTERS, []
    for part in compared:
        if part.change in ("same", own) and room > 0:
            drawn.append(Part(part.change, part.text[:room]))
            room -= len(part.text)
    return Side(title, drawn, max(0, length - sum(len(part.text) for part in drawn)))


def _named(what: str, response: Mapping[str, Any]) -> str:
    return f"{what} · {response['by']}" if response.get("by") else what


def _changed(every: Sequence[Part]) -> list[tuple[str, str]]:
    removed, added = (
        sum(differences.words(part.text) for part in every if part.change == change) for change in ("removed", "added")
    )
    return [("words removed", number(removed)), ("words added", number(added))]


def _fact(value: Any) -> str:
    """A value of the record as text; empty for what is no text, number or list of them."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_fact, value[:MOST_STEPS])))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else value[:MOST_REASON] if isinstance(value, str) else ""
