"""Common parts of pair builders: which responses of a sample may be in a pair, and the form of a pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fgrl.base.errors import DataError
from fgrl.kinds import PairBuilder
from fgrl.registry import name_of
from fgrl.types import Pair, Response, Sample


class ResponsePairs(PairBuilder):
    """Pair builder for responses of the same sample."""

    finished_only: bool = False
    """Leave out responses that reached the length limit."""

    def usable(self, sample: Sample) -> list[Response]:
        """Return the responses that may be in a pair. Raises `DataError` if the sample has no response at all."""
        if not sample.responses:
            raise DataError(
                f"sample {sample.id} has no responses: {name_of(self)[1]} wants samples of a `sample` stage"
            )
        return [response for response in sample.responses if not (self.finished_only and response.finished is False)]

    def pair(self, sample: Sample, number: int, chosen: Response, rejected: Response, /, **about: Any) -> Pair:
        """Return the sample's pair with this number. Its `meta` is the sample's, with the entries of `about`."""
        return Pair(
            id=f"{sample.id}#{number}",
            prompt=sample.prompt,
            chosen=chosen.text,
            rejected=rejected.text,
            meta={**sample.meta, **about},
        )


def distinct(responses: Iterable[Response]) -> list[Response]:
    """Return the first response with each text; white space around the text is ignored."""
    first: dict[str, Response] = {}
    for response in responses:
        first.setdefault(response.text.strip(), response)
    return list(first.values())
