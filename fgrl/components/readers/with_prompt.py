"""Samples of another reader, inserted into a prompt file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fgrl.base.errors import DataError
from fgrl.feedback.templates import as_text, read_prompt
from fgrl.kinds import Expected, Peek, Reader, stated
from fgrl.registry import File, register
from fgrl.types import Sample

QUESTION = "question"


@register("with_prompt")
class WithPrompt(Reader):
    """Samples whose prompt is inserted into a prompt file, together with entries of their `meta`.

        prompts: {name: with_prompt, data: {name: samples, of: "${out:queries}"}, prompt: ../prompts/answer_from_document.txt}

    In the file, {prompt} stands for the sample's own prompt and {NAME} for the entry NAME of its `meta`.
    `meta.question` then holds the sample's own prompt, which judges, annotation pages and rewriters show instead of the
    whole one; an existing entry stays. A file with one user turn gives a prompt that is a text, any other the turns of
    a conversation.
    """

    data: Reader
    """Reader of the samples."""
    prompt: Annotated[str, File]
    """Prompt file, with {prompt}."""

    def expects(self, peek: Peek) -> Expected | None:
        return stated(self.data, "expects", peek)

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        return self.data.criteria_counts(peek)

    def read(self) -> Iterator[Sample]:
        """Return the samples. Raise `DataError` for a placeholder that is neither {prompt} nor an entry of a sample's
        `meta`.
        """
        for sample in self.data.read():
            yield self._filled(sample)

    def _filled(self, sample: Sample) -> Sample:
        own = as_text(sample.prompt)
        values = {name: _text(value) for name, value in sample.meta.items()} | {"prompt": own}
        try:
            messages = read_prompt(self.prompt, values, ("prompt",)).fill(values)
        except DataError as problem:
            raise DataError(f"sample {sample.id}: {problem}") from None
        prompt = messages[0].content if [turn.role for turn in messages] == ["user"] else messages
        return sample.model_copy(update={"prompt": prompt, "meta": {QUESTION: own, **sample.meta}})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
