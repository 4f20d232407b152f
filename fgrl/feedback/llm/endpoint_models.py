"""Facts about the models of endpoints besides their prices: the day until which they answer, and the number of tokens
they read.

The table beside this file has the last days, each with its source. Context lengths come from the package genai-prices,
or from the table if the package has none. Nothing is looked up over the network.
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
"""Time before an end within which a warning is given."""


class EndpointModel(Settings):
    """Entry of the table for a model."""

    ends: date | None = None
    """First day without answers. null: no end is known."""
    state: Literal["ended", "announced", "presumed"] = "announced"
    """State of the end: the provider says that the model has ended, the provider has named the day, or the model is no
    longer in the provider's lists.
    """
    replacement: str | None = None
    """Name of the model that the provider recommends as its replacement."""
    context: int | None = Field(None, ge=1)
    """Maximum number of tokens of prompt and answer together. null: see genai-prices."""
    comment: str | None = None
    """Further information about the end."""


class ModelTable(Settings):
    """Models of one host."""

    host: str
    """The endpoint's host."""
    as_of: date
    """Day on which the source was read."""
    source: str
    """Address where the provider announces ends."""
    models: dict[str, EndpointModel]
    """Entries by the model's name at the endpoint."""


@cache
def tables() -> dict[str, ModelTable]:
    """Return the tables by host."""
    read = TypeAdapter(list[ModelTable]).validate_python(yaml.safe_load(PATH.read_text(encoding="utf-8")))
    return {table.host: table for table in read}


def _known(model: str, endpoint: str) -> EndpointModel | None:
    table = tables().get(urlsplit(endpoint).hostname or "")
    return None if table is None else table.models.get(model)


def context_length(model: str, endpoint: str) -> int | None:
    """Return the number of tokens that prompt and answer may have together at the URL `endpoint`; None if it is not
    known.
    """
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
