"""The manager's page: progress of all annotators, their agreement, and the work of all of them on one item."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fgrl.pages.annotation.export import exported
from fgrl.pages.annotation.shown import about_item, about_work, in_a_list
from fgrl.pages.annotation.statistics import Work, counts, statistics_of, tables, times, works
from fgrl.pages.annotation.store import Store

RESAMPLES = 500
"""Bootstrap draws for the intervals on the page; `fgrl annotate stats` makes more."""


def overview(store: Store) -> dict[str, Any]:
    """Return the annotators with their progress, all items with the annotators who have finished them, and the tables
    of `fgrl annotate stats`.
    """
    settings = store.settings
    samples = list(exported(store))
    done = works(samples, settings.domain, of=store.annotators)
    own: dict[str, list[Work]] = {name: [work for work in done if work.by == name] for name in store.annotators}
    by_item: dict[str, list[Work]] = {}
    for work in done:
        by_item.setdefault(work.item, []).append(work)
    return {
        "settings": settings.model_dump(mode="json"),
        "annotators": [
            {
                "name": name, **asdict(store.progress(name)), "cannot_judge": sum(work.unjudged is not None for work in mine),
                "likes": counts(mine).likes, "dislikes": counts(mine).dislikes, "seconds": times(mine).median,
            }
            for name, mine in own.items()
        ],
        "items": [
            {"id": str(number), **in_a_list(sample, settings), **_by(by_item.get(sample.id, []))}
            for number, sample in enumerate(samples, start=1)
        ],
        "tables": [{"title": title, "rows": rows} for title, rows in tables(statistics_of(done, resamples=RESAMPLES))],
    }  # fmt: skip


def _by(some: list[Work]) -> dict[str, Any]:
    """Return the state of an item by annotator, and whether the annotators' preferences differ."""
    verdicts = {work.verdict.verdict for work in some if work.verdict is not None}
    states = {
        work.by: "cannot_judge" if work.unjudged is not None else "done" if work.done else "started" for work in some
    }
    return {"by": states, "differ": len(verdicts) > 1}


def reviewed(store: Store, item: str) -> dict[str, Any]:
    """Return an item with the work of all annotators who have started it."""
    sample = store.sample(item)
    states = {name: store.state(item, name) for name in store.annotators}
    return {
        "id": str(store.number_of(item)),
        **about_item(sample, store.settings),
        "responses": [{"place": place, "text": sample.responses[place].text} for place in store.shown(item)],
        "suggested": store.settings.suggestions(sample, store.shown(item)),
        "people": {name: about_work(state) for name, state in states.items() if state.begun},
    }
