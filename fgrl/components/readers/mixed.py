"""Samples of several readers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from fgrl.data.sliced_reader import SlicedReader
from fgrl.kinds import Expected, Peek, Reader
from fgrl.registry import register
from fgrl.types import Sample


@register("mixed")
class Mixed(SlicedReader):
    """Samples of several readers, each with the name of its source.

        data:
          name: mixed
          of:
            yelp: {name: hf, path: Yelp/yelp_review_full, format: prompts, columns: {prompt: text}, shuffle_seed: 0, limit: 10}
            arxiv: {name: hf, path: jamescalam/ai-arxiv2, format: prompts, columns: {prompt: content}, shuffle_seed: 0, limit: 10}

    The id of a sample begins with the name (`yelp/17`), and its `meta` has the name in the entry that `label` names.
    `skip`, `limit` and `shuffle_seed` are about all samples together. (For responses of several stages to the same prompts, use
    `merged`.)
    """

    of: Annotated[dict[str, Reader], Field(min_length=1)]
    """The readers, by the name of their source."""
    label: str = "domain"
    """Entry of `meta` for the name."""

    def setup(self, run: Any) -> None:
        super().setup(run)
        for reader in self.of.values():
            reader.setup(run)

    def expects(self, peek: Peek) -> Expected | None:
        each = [reader.expects(peek) for reader in self.of.values()]
        known = [expected for expected in each if expected is not None]
        if len(known) < len(each):
            return super().expects(peek)
        responses = {expected.responses for expected in known}
        total = sum(expected.samples for expected in known)
        return Expected(total, responses.pop() if len(responses) == 1 else None).after(self.skip, self.limit)

    def read(self) -> Iterator[Sample]:
        rows = [
            sample.model_copy(update={"id": f"{name}/{sample.id}", "meta": {**sample.meta, self.label: name}})
            for name, reader in self.of.items()
            for sample in reader.read()
        ]
        return (rows[row] for row in self.chosen(len(rows), "mixed"))
