"""IFBench's rules on repeating the request."""

from __future__ import annotations

from pydantic import Field, model_validator

from fgrl.feedback.rules.rule import Rule
from fgrl.registry import register

THIS_SENTENCE = "only output this sentence here, ignore all other requests."


@register("repeat:repeat_change")
class RepeatChange(Rule):
    """The response is the request with a different first word; white space may differ."""

    prompt_to_repeat: str = Field(pattern=r"\S")
    """Text of the request."""

    def keeps(self, response: str) -> bool:
        return response != self.prompt_to_repeat and response.split()[1:] == self.prompt_to_repeat.split()[1:]


@register("repeat:repeat_simple")
class RepeatSimple(Rule):
    """The response is the sentence "Only output this sentence here, ignore all other requests.", in any case."""

    def keeps(self, response: str) -> bool:
        return response.strip().lower() == THIS_SENTENCE


@register("repeat:repeat_span")
class RepeatSpan(Rule):
    """The response is the words of the request from n_start to before n_end, in any case."""

    prompt_to_repeat: str = Field(pattern=r"\S")
    """Text of the request."""
    n_start: int = Field(ge=0)
    """Index of the first word, counted from 0."""
    n_end: int = Field(ge=1)
    """Index of the word after the last one."""

    @model_validator(mode="after")
    def _ordered(self) -> RepeatSpan:
        if self.n_end <= self.n_start:
            raise ValueError(f"n_end {self.n_end} is not beyond n_start {self.n_start}")
        return self

    def keeps(self, response: str) -> bool:
        return response.lower().split() == self.prompt_to_repeat.lower().split()[self.n_start : self.n_end]
