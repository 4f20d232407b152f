"""Annotated samples for tests."""

from __future__ import annotations

from typing import Any

from fgrl.types import Annotation, PairVerdict, Response, Sample, Span

A = "Die Katze 😺 sitzt auf dem é́ Dach.\nSie schläft 🇩🇪 dort."
B = "A second 👩‍👩‍👧 answer, with more words in it."


def span(text: str, quote: str, label: float, **more: Any) -> Span:
    """Of the first occurrence of a quote."""
    start = text.index(quote)
    return Span(start=start, end=start + len(quote), label=label, **more)


def annotated(id: str = "1", **changes: Any) -> Sample:
    """Two responses and two annotators; every field that a page can store has a value that is not its default."""
    ada = Annotation(
        by="Ada",
        spans=[
            span(
                A, "sitzt auf dem é́", 1.0, id="s1", reasons=["useful_fact", "other"], note='sagt, "wo" <b>\nzwei Zeilen'
            ),
            span(A, "Dach.\nSie schläft 🇩🇪", -1.0, id="s2", reasons=["too_wordy"]),
            span(A, "auf", -1.0, id="s3", note="überlappt"),
        ],
        answers={"liked": ["clear", "faithful"], "comment": "Gut & kurz 🎉"},
    )
    ada_b = Annotation(by="Ada", spans=[span(B, "👩‍👩‍👧 answer", -1.0, id="s4", reasons=["generic"])])
    bob = Annotation(by="bob@example.org", spans=[span(A, "sitzt auf dem é́", 1.0, id="t1", reasons=["useful_fact"])])
    sample = Sample(
        id=id,
        prompt="Wo ist die Katze?",
        responses=[Response(text=A, by="m", annotations=[ada, bob]), Response(text=B, by="m", annotations=[ada_b])],
        verdicts=[
            PairVerdict(first=0, second=1, verdict="second", reason="länger", by="Ada"),
            PairVerdict(first=0, second=1, verdict="tie", reason="gleich gut", by="bob@example.org"),
        ],
        meta={
            "document": "Ein Text über Katzen.",
            "domain": "Yelp",
            "annotation": {
                "by": {"Ada": {"seconds": 41.5, "done": True}, "bob@example.org": {"seconds": 12.0, "done": True}}
            },
        },
    )
    return sample.model_copy(update=changes)
