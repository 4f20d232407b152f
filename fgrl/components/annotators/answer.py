"""Responses of a language model to the samples' prompts: what a strong model writes ("Rubrics to Tokens", appendix C.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from fgrl.feedback.negatives import listed
from fgrl.kinds import Annotator, Client, Expected, Run
from fgrl.llm.asking import Question, ask, spent, tally
from fgrl.llm.reading import read_answer
from fgrl.registry import File, register
from fgrl.templates import Prompt, as_text, read_prompt
from fgrl.types import Request, Response, Sample


@register("answer")
class Answer(Annotator):
    """A language model answers each prompt; its answer becomes the sample's chosen response.

    A request that fails for good, an answer that is empty or cut off, drops the sample, and is counted.
    """

    client: Client
    """Who answers."""
    prompt: Annotated[str, File]
    """Prompt file; it says {prompt} (a chat of several turns with its roles), and may say {rubric}, the criteria."""
    tries: int = Field(2, ge=1)
    """How often a prompt is put in all when its answer cannot be used."""
    max_tokens: int | None = Field(4096, ge=1)
    """Length limit of an answer; null is the client's own."""
    temperature: float | None = Field(None, ge=0)
    """Of the model; null is the client's own."""

    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self.client.setup(run)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        prompt = self._template()
        asked = ask(self.client, [self._question(prompt, sample) for sample in samples], self.tries)
        self._counts = {**tally(asked), **spent(self.client)}
        return [
            sample.with_chosen(Response(text=one.value))
            for sample, one in zip(samples, asked, strict=True)
            if one.value is not None
        ]

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        prompt = self._template()
        return [self._question(prompt, sample).request for sample in given]

    def asks_at_most(self, expected: Expected) -> int | None:
        return expected.samples

    def counts(self) -> dict[str, Any]:
        """What became of the questions, and what they cost."""
        return self._counts

    def _template(self) -> Prompt:
        return read_prompt(self.prompt, ("prompt", "rubric"), ("prompt",))

    def _question(self, prompt: Prompt, sample: Sample) -> Question[str]:
        values = {"prompt": as_text(sample.prompt), "rubric": listed(sample.rubric)}
        return Question(prompt.fill(values), read_answer, max_tokens=self.max_tokens, temperature=self.temperature)
