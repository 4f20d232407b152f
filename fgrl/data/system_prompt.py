"""A system prompt for prompts that have none."""

from __future__ import annotations

from typing import TypeVar

from pydantic import field_validator

from fgrl.registry import Settings
from fgrl.types import Message, Pair, Sample

R = TypeVar("R", Sample, Pair)


class SystemPrompt(Settings):
    """The setting `system` of readers."""

    system: str | None = None
    """System prompt for every prompt that has none. A prompt that is a text becomes a conversation, so the model needs
    a chat template. null: prompts stay unchanged.
    """

    @field_validator("system")
    @classmethod
    def _has_text(cls, system: str | None) -> str | None:
        if system is not None and not system.strip():
            raise ValueError("is empty; leave it out for prompts without a system prompt")
        return system

    def with_system(self, record: R) -> R:
        """Return a sample or pair whose prompt begins with the system prompt. It stays unchanged if no system prompt is
        set, or if it has its own.
        """
        prompt = record.prompt
        if self.system is None:
            return record
        turns: list[Message] = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        if turns[0].role == "system":
            return record
        return record.model_copy(update={"prompt": [Message(role="system", content=self.system), *turns]})
