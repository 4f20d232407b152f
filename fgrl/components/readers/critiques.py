"""Annotated responses as examples for training a critic (Text2Grad, section 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.feedback.critic import PLACEHOLDERS, REQUIRED, shown
from fgrl.feedback.critiques import CritiqueFormat, write_critique
from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.kinds import Reader
from fgrl.registry import File, register
from fgrl.types import Annotation, Message, Response, Sample


@register("critiques")
class Critiques(SlicedReader):
    """Training examples from annotations of responses: a critic's prompt, and the JSON that the critic should write.

    `finetune` with `sft` trains on them. The trained model is then asked with the same `prompt` and `format`, by the
    annotator `dual_feedback` or the reward `critic`. Annotations without spans are examples too: there may be nothing
    to mark.
    """

    data: Reader
    """Reader of the annotated samples."""
    prompt: Annotated[str, File]
    """Prompt file with the placeholders of `dual_feedback`."""
    format: CritiqueFormat = Field(default_factory=CritiqueFormat)
    """Format of the JSON object that the critic learns to write."""
    by: str | None = None
    """Author whose annotations are used, a person or a model; null takes all."""

    def read(self) -> Iterator[Sample]:
        """Return the examples. Raise `DataError` if there are none, and for an annotation that the format cannot
        express.
        """
        template = read_prompt(self.prompt, PLACEHOLDERS, REQUIRED)
        annotated = list(self._annotated())
        where = "critiques" if self.by is None else f"critiques by {self.by!r}"
        return (self._example(template, *annotated[row]) for row in self.chosen(len(annotated), where))

    def _annotated(self) -> Iterator[tuple[str, Sample, Response, Annotation]]:
        """Yield every annotation to use, with its own id."""
        for sample in self.data.read():
            for place, response in enumerate(sample.responses):
                for number, annotation in enumerate(response.annotations):
                    if response.text.strip() and self.by in (None, annotation.by):
                        yield f"{sample.id}/{place}/{number}", sample, response, annotation

    def _example(
        self, template: Prompt, name: str, sample: Sample, response: Response, annotation: Annotation
    ) -> Sample:
        try:
            target = write_critique(annotation, response.text, self.format)
        except DataError as problem:
            raise DataError(f"annotation {name}: {problem}") from None
        return Sample(
            id=name,
            prompt=_plain(template.fill(shown(sample, response))),
            responses=[Response(text=target, by=annotation.by or None)],
            chosen=0,
            meta={"of": sample.id},
        )


def _plain(messages: list[Message]) -> str | list[Message]:
    """Return a single user turn as a text, which models without a chat template can read too, as in the client `local`."""
    return messages[0].content if [turn.role for turn in messages] == ["user"] else messages
