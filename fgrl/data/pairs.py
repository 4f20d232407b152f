"""Preference pairs read as samples."""

from __future__ import annotations

from fgrl.types import Pair, Response, Sample


def as_sample(pair: Pair) -> Sample:
    """A pair as a sample with two responses, the rejected one first."""
    responses = [Response(text=pair.rejected), Response(text=pair.chosen)]
    return Sample(id=pair.id, prompt=pair.prompt, responses=responses, meta=pair.meta)
