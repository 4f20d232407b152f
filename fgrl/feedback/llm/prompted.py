"""What annotators, judges and metrics share that ask a language model with a prompt file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.kinds import Client
from fgrl.registry import File, Settings
from fgrl.types import Request


class Prompted(Settings):
    """A subclass names the placeholders of its prompt; which questions it asks, and how their answers are read, is its
    own.
    """

    placeholders: ClassVar[tuple[str, ...]]
    """What the prompt may contain."""
    required: ClassVar[tuple[str, ...]]
    """What the prompt must contain."""

    client: Client
    """The language model that is asked."""
    prompt: Annotated[str, File]
    """The prompt file."""
    tries: int = Field(2, ge=1)
    """How often a question is asked at most when its answer cannot be used."""
    max_tokens: int | None = Field(None, ge=1)
    """Length limit of an answer; null is the client's own. Models that think before they answer need more."""
    temperature: float | None = Field(None, ge=0, le=100)
    """Of the language model; null is the client's own."""

    @property
    def longest(self) -> int | None:
        """Length limit of an answer that a question sets, in tokens; None is the client's own."""
        return self.max_tokens

    def setup(self, run: Any) -> None:
        self.template()
        super().setup(run)

    def template(self) -> Prompt:
        """Return the prompt. Raises `DataError` when it has an unknown placeholder, or lacks a required one."""
        return read_prompt(self.prompt, self.placeholders, self.required)

    def request(self, template: Prompt, values: Mapping[str, str], **more: Any) -> Request:
        """Return the prompt with its placeholders replaced, within the component's own limits."""
        limits = {"max_tokens": self.longest, "temperature": self.temperature}
        return Request(messages=template.fill(values), **(limits | more))
