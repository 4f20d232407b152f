"""Responses of several stages to the same prompts, as candidates in one sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.registry import register
from fgrl.types import Ref, Response, Sample, Samples


@register("merged")
class Merged(SlicedReader):
    """Responses of several stages to the same prompts: `{name: merged, of: {gpt4o: "${out:gpt4o}", policy:
    "${out:drafts}"}}`.

    A prompt's sample has the responses of all stages, in the order of the list, and no chosen response. Samples are
    matched by their ids. A prompt that only some of the stages answered is kept with its available responses, and
    counted. Reference, rubric and meta come from the first stage that has the prompt.
    """

    of: Annotated[dict[str, Ref[Samples]], Field(min_length=2)]
    """The stages, by the name that becomes the author of responses without one."""

    def read(self) -> Iterator[Sample]:
        """Return the samples. Raise `DataError` for two different prompts with one id, and for two samples of one stage
        with one id.
        """
        merged: dict[str, Sample] = {}
        answered: Counter[str] = Counter()
        for name, ref in self.of.items():
            own: set[str] = set()
            for sample in Samples(self.product(ref)).read():
                if sample.id in own:
                    raise DataError(f"{ref} has two samples {sample.id!r}: merged needs each prompt once")
                own.add(sample.id)
                merged[sample.id] = _with_more(merged.get(sample.id), sample, name, ref)
            answered.update(own)
        rows = list(merged.values())
        partly = sum(count < len(self.of) for count in answered.values())
        self.say(f"merged: {len(rows):,} prompts, {partly:,} of them without an answer of every stage")
        return (rows[row] for row in self.chosen(len(rows), "merged"))


def _with_more(known: Sample | None, sample: Sample, name: str, ref: Ref[Samples]) -> Sample:
    """Return the merged sample of a prompt, with the responses of one more stage."""
    own = [_by(response, name) for response in sample.responses]
    if known is None:
        return sample.model_copy(update={"responses": own, "chosen": None, "verdicts": None})
    if known.prompt != sample.prompt:
        raise DataError(f"{ref}: sample {sample.id!r} has another prompt than in the stages before it")
    return known.model_copy(update={"responses": [*known.responses, *own]})


def _by(response: Response, name: str) -> Response:
    return response if response.by is not None else response.model_copy(update={"by": name})
