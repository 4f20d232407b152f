"""Shared part of annotators, judges and metrics that ask a language model with a prompt file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.kinds import Client
from fgrl.registry import File, Settings
from fgrl.types import Request


class Prompted(Settings):
    """A component that asks with a prompt file. A subclass names the placeholders of its prompt, and defines its
    questions and how their answers are read.
    """

    placeholders: ClassVar[tuple[str, ...]]
    """Placeholders that the prompt may contain."""
    required: ClassVar[tuple[str, ...]]
    """Placeholders that the prompt must contain."""

    client: Client
    """The language model that is asked."""
    prompt: Annotated[str, File]
    """The prompt file."""
    tries: int = Field(2, ge=1)
    """Maximum number of times that a question is asked if its answer cannot be used."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens of an answer; null: the client's own limit. Models that think before they answer need
    more.
    """
    temperature: float | None = Field(None, ge=0, le=100)
    """Temperature of the language model; null: the client's own."""

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of an answer that a question sets; None: the client's own limit."""
        return self.max_tokens

    def setup(self, run: Any) -> None:
        self.template()
        super().setup(run)

    def template(self) -> Prompt:
        """Return the prompt. Raises `DataError` when it has an unknown placeholder, or lacks a required one."""
        return read_prompt(self.prompt, self.placeholders, self.required)

    def request(self, template: Prompt, values: Mapping[str, str], **more: Any) -> Request:
        """Return the request for the prompt with its placeholders replaced, within the component's own limits."""
        limits = {"max_tokens": self.longest, "temperature": self.temperature}
        return Request(messages=template.fill(values), **(limits | more))
