"""An annotator who uses the keyboard alone, and the number of keys that were pressed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from annotation_browser import Desk, Site, items

from fgrl.types import Sample

SUBJECTS = ("The hotel", "The first review", "The answer", "This part of the text", "The second source", "Such a stay")
PREDICATES = (
    "repeats what the source says about **breakfast** and parking",
    "names the price of a room, which was 120 dollars in May",
    "says nothing about the noise at night",
    "claims that *every guest* would come back",
    "lists the tram, the bus and the ferry without a reason",
    "draws a careful conclusion from three reviews",
)


def response(draw: random.Random) -> str:
    """Eight sentences in Markdown: a paragraph, a list, a closing paragraph."""
    lines = [f"{draw.choice(SUBJECTS)} {predicate}." for predicate in draw.choices(PREDICATES, k=8)]
    return f"{lines[0]} {lines[1]}\n\n" + "".join(f"- {line}\n" for line in lines[2:6]) + f"\n{lines[6]} {lines[7]}"


def paper_items(count: int) -> list[Sample]:
    """Items of two responses each, every one another."""
    draw = random.Random(7)
    return [
        items(1, (response(draw), response(draw)))[0].model_copy(update={"id": f"item-{number}"})
        for number in range(1, count + 1)
    ]


@dataclass
class Keyboard:
    """Presses keys on a desk. Every key counts, a held one of a combination too, and each letter that is typed."""

    desk: Desk
    pressed: list[str] = field(default_factory=list)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.pressed += key.split("+")
            self.desk.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.press(*text)


class Marked(NamedTuple):
    """What an annotator meant to mark."""

    quote: str
    label: int
    reasons: frozenset[str]


def annotate(keyboard: Keyboard, site: Site, number: int, annotator: str = "ann") -> set[Marked]:
    """Annotate the open item as the paper's annotators did: ten marks, one of them a like, four reasons each and no two
    marks with the same ones, one mark of a few words, the others sentences; then the verdict with a reason. Returns the
    marks.
    """
    draw = random.Random(number)
    item = f"item-{number}"
    order = site.store.state(item, annotator).order
    taxonomy = site.store.settings.taxonomy
    assert order is not None
    assert taxonomy is not None
    meant: list[Marked] = []
    keyboard.press("l")
    for turn, place in enumerate(order):
        sentences = [line.lstrip("- ") for line in site.store.sample(item).responses[place].text.split("\n") if line]
        sentences = [f"{part}." for line in sentences for part in line.rstrip(".").split(". ")]
        if turn:
            keyboard.press("b")
        chosen = sorted(draw.sample(range(7), 5))
        for here in range(chosen[-1] + 1):
            keyboard.press("s")
            if here not in chosen:
                continue
            label = 1 if not meant else -1
            if len(meant) == 1:
                keyboard.press("d")
            quote = sentences[here]
            if len(meant) == 6:
                keyboard.press("f", "x")
                quote = " ".join(quote.split()[:2])
            first = draw.randrange(10)
            keys = [first, *draw.sample([key for key in range(19) if key != first], 3)]
            keyboard.press(*("1234567890qwertyuiop"[key] for key in keys))
            ids = [attribute.id for attribute in taxonomy.of(label).attributes]
            meant.append(Marked(quote, label, frozenset(ids[key] for key in keys)))
    keyboard.press("v", draw.choice("12"))
    keyboard.type("clearer")
    keyboard.press("Control+Enter")
    return set(meant)


def as_marked(site: Site, number: int, annotator: str = "ann") -> set[Marked]:
    """What the store has."""
    state = site.store.state(f"item-{number}", annotator)
    return {
        Marked(own.body["quote"], own.body["label"], frozenset(own.body["reasons"]))
        for own in state.live_spans.values()
    }
