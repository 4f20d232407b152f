"""Settings of an endpoint: number of calls, rate limits, timeout and retries."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fgrl.registry import Settings, Unkeyed


class EndpointSettings(Settings):
    """Settings of an endpoint: number of calls, rate limits, timeout and retries. None of them changes an answer."""

    concurrency: Annotated[int, Unkeyed] = Field(32, ge=1, le=1024)
    """Maximum number of calls in flight at the same time."""
    requests_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Maximum number of requests per minute, retries included; calls are spaced evenly. null: no limit."""
    tokens_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Maximum number of tokens per minute; each attempt counts as its prompt's estimated tokens plus `max_tokens`.
    null: no limit.
    """
    timeout: Annotated[float, Unkeyed] = Field(300.0, gt=0, le=86_400)
    """Maximum duration of one attempt in seconds."""
    max_retries: Annotated[int, Unkeyed] = Field(5, ge=0, le=1_000)
    """Maximum number of retries after an attempt that was refused (429, 5xx) or broke; then the request is listed as
    failed.
    """
