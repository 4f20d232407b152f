"""What is known of the models of endpoints besides their prices: until when they answer, and how many tokens they read.

The table beside this file has the ends, each with its source. Context lengths are those of the package genai-prices, or
the table's where the package has none. Nothing is looked up over the network.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml
from pydantic import Field, TypeAdapter

from fgrl.feedback.llm import price_tables
from fgrl.registry import Settings

PATH = Path(__file__).with_name("endpoint_models.yaml")
SOON = timedelta(days=90)
"""An end within this time is worth a warning."""


class EndpointModel(Settings):
    """What the table has of a model."""

    ends: date | None = None
    """First day without answers. null: no end is known."""
    state: Literal["ended", "announced", "presumed"] = "announced"
    """The provider says that it has ended, the provider named the day, or the model is no longer in the provider's
    lists.
    """
    replacement: str | None = None
    """Name of the model that the provider names in its place."""
    context: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together. null: see genai-prices."""
    comment: str | None = None
    """More about the end."""


class ModelTable(Settings):
    """Models of one host."""

    host: str
    """The endpoint's host."""
    as_of: date
    """When the source was read."""
    source: str
    """Where the provider announces ends."""
    models: dict[str, EndpointModel]
    """By the model's name at the endpoint."""


@cache
def tables() -> dict[str, ModelTable]:
    """Return the tables by host."""
    read = TypeAdapter(list[ModelTable]).validate_python(yaml.safe_load(PATH.read_text(encoding="utf-8")))
    return {table.host: table for table in read}


def _known(model: str, endpoint: str) -> EndpointModel | None:
    table = tables().get(urlsplit(endpoint).hostname or "")
    return None if table is None else table.models.get(model)


def context_length(model: str, endpoint: str) -> int | None:
    """Return how many tokens prompt and answer may have together at the URL `endpoint`; None when it is not known."""
    known = _known(model, endpoint)
    if known is not None and known.context is not None:
        return known.context
    listed = price_tables.listed(model, endpoint)
    return None if listed is None else listed.model.context_window


def warning(model: str, endpoint: str, today: date) -> str | None:
    """Return a sentence about a model that has ended or ends within `SOON`; None for any other."""
    known = _known(model, endpoint)
    if known is None or known.ends is None:
        listed = price_tables.listed(model, endpoint)
        if known is not None or listed is None or not listed.model.deprecated:
            return None
        return f"genai-prices lists {model} as deprecated: look for its end, and set another `model`"
    if known.ends > today + SOON:
        return None
    when = f"has ended on {known.ends}" if known.ends <= today else f"ends on {known.ends}"
    table = tables()[urlsplit(endpoint).hostname or ""]
    about = ", ".join([known.state, *([known.comment] if known.comment else []), table.source])
    instead = (
        f"`model: {known.replacement}` is its provider's replacement" if known.replacement else "set another `model`"
    )
    return f"{model} {when} ({about}): {instead}"
