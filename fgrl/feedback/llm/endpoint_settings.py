"""How many calls an endpoint is sent, how fast, and how patiently."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fgrl.registry import Settings, Unkeyed


class EndpointSettings(Settings):
    """How many calls an endpoint is sent, how fast, and how patiently. None of it changes an answer."""

    concurrency: Annotated[int, Unkeyed] = Field(32, ge=1, le=1024)
    """Calls in flight at the same time."""
    requests_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit, retries included; calls are spaced evenly. null: none."""
    tokens_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit; each attempt counts as its prompt's estimated tokens plus `max_tokens`. null: none."""
    timeout: Annotated[float, Unkeyed] = Field(300.0, gt=0, le=86_400)
    """Seconds that one attempt may take."""
    max_retries: Annotated[int, Unkeyed] = Field(5, ge=0, le=1_000)
    """How often an attempt that was refused (429, 5xx) or broke is retried before the request is listed as failed."""
