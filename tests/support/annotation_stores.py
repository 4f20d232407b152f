"""Samples, settings and stores for the tests of the annotation page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fgrl.feedback.page_settings import PageSettings
from fgrl.pages.annotation.store import Store
from fgrl.types import Response, Sample

TEXTS = (
    "The café opens at 8. 🎉 It is cheap, and it is loud.",
    "It opens at nine.\nIt is dear; nobody goes there twice.",
)
SETTINGS: dict[str, Any] = {
    "taxonomy": {
        "likes": {"groups": [{"title": "Content", "attributes": [{"id": "fact", "text": "It states a fact."}]}]},
        "dislikes": {
            "groups": [
                {
                    "title": "Content",
                    "attributes": [{"id": "wrong", "text": "It is wrong."}, {"id": "wordy", "text": "It is wordy."}],
                }
            ]
        },
    },
    "questions": [
        {"id": "overall", "text": "Overall?", "kind": "tick", "options": [{"id": "good", "text": "Good"}, {"id": "bad", "text": "Bad"}]},
        {"id": "why", "text": "Why?", "kind": "text"},
    ],
}  # fmt: skip


def settings(**changes: Any) -> PageSettings:
    """Two responses, both kinds of spans, three attributes, two questions; `changes` are top-level fields."""
    return PageSettings.model_validate({**SETTINGS, **changes})


def samples(count: int, texts: Iterable[str] = TEXTS) -> list[Sample]:
    """Samples of two responses each, by two models, with a document and a domain."""
    return [
        Sample(
            id=f"item-{number}",
            prompt=f"When does café {number} open?",
            responses=[Response(text=text, by=f"model-{place}", score=0.25) for place, text in enumerate(texts)],
            meta={"document": f"Café {number}: open from 8.", "domain": "yelp", "secret": "never shown"},
        )
        for number in range(1, count + 1)
    ]


def new_store(folder: Path, items: int = 3, annotators: Iterable[str] = ("ann", "ben"), **options: Any) -> Store:
    """A store of these samples."""
    page = options.pop("settings", settings())
    texts = options.pop("texts", TEXTS)
    return Store.create(folder / "page.sqlite", samples(items, texts), page, annotators, **options)


def span(
    start: int = 4, end: int = 8, *, place: int = 0, texts: tuple[str, ...] = TEXTS, **changes: Any
) -> dict[str, Any]:
    """The body of a disliked span whose quote is right."""
    return {
        "place": place, "start": start, "end": end, "quote": texts[place][start:end], "label": -1, "reasons": ["wrong"],
        "note": "", "deleted": False, **changes,
    }  # fmt: skip


def without_waiting_for_the_disk(store: Store) -> Store:
    """The store, no longer flushing every write: for tests that write much and kill nothing."""
    with store._reading() as database:
        database.execute("PRAGMA synchronous = OFF")
    return store
