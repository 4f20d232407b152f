"""JSON for the pages about items and about the work on them."""

from __future__ import annotations

import json
from typing import Any

from fgrl.feedback.page_settings import PageSettings
from fgrl.pages.annotation.revisions import ItemState, Revision
from fgrl.types import Message, Sample

LONGEST_QUERY = 300
"""Maximum number of characters of a query in a list of items."""


def about_item(sample: Sample, settings: PageSettings) -> dict[str, Any]:
    """Return prompt (a text, or turns), document and domain of an item."""
    prompt = query_of(sample, settings)
    return {
        "prompt": prompt if isinstance(prompt, str) else [turn.model_dump() for turn in prompt],
        "document": as_text(sample.meta.get(settings.document)),
        "domain": as_text(sample.meta.get(settings.domain)),
    }


def in_a_list(sample: Sample, settings: PageSettings) -> dict[str, Any]:
    """Return the query and the domain, as one line each. For a conversation, the query is the last turn."""
    prompt = query_of(sample, settings)
    line = " ".join((prompt if isinstance(prompt, str) else prompt[-1].content).split())
    return {"query": line[:LONGEST_QUERY], "domain": as_text(sample.meta.get(settings.domain))}


def query_of(sample: Sample, settings: PageSettings) -> str | list[Message]:
    """Return the text or the turns that annotators read as the query."""
    query = sample.meta.get(settings.query)
    return query if isinstance(query, str) and query.strip() else sample.prompt


def about_work(state: ItemState) -> dict[str, Any]:
    """Return an annotator's current record of an item."""
    return {
        "spans": {id: in_answers(revision) for id, revision in state.spans.items()},
        "answers": {str(place): in_answers(revision) for place, revision in state.answers.items()},
        "verdict": None if state.last_verdict is None else in_answers(state.last_verdict),
        "suggestions": {key: in_answers(revision) for key, revision in state.suggestions.items()},
        "cannot_judge": None if state.cannot_judge is None else in_answers(state.cannot_judge),
        "done": state.done,
        "seconds": state.seconds or 0.0,
    }


def in_answers(revision: Revision) -> dict[str, Any]:
    """Return a revision in the form of an answer to a request: for a span, its fields with id and version; otherwise
    version and body.
    """
    if revision.kind == "span":
        return {"id": revision.key, "version": revision.version, **revision.body}
    return {"version": revision.version, "body": revision.body}


def as_text(value: Any) -> str | None:
    """Return an entry of a sample's `meta` as text: a list of texts as paragraphs, any other value that is not a text
    as JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n\n".join(value)
    return json.dumps(value, ensure_ascii=False, indent=1)
