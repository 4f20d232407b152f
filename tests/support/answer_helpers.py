"""Answers for tests of metrics and of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl.measuring.answer import Answer, FollowUp
from fgrl.types import Criterion, Message, Response, Sample


def answer_of(
    id: str, prompt: str | list[Message], response: str, tokens: Sequence[str] = (), offsets: Sequence[tuple[int, int]] = (),
    finished: bool | None = None, *, references: Sequence[str] = (), meta: dict[str, Any] | None = None,
    rubric: Sequence[Criterion] = (), follow_ups: Sequence[tuple[str, str]] = (), **measured: Any,
) -> Answer:  # fmt: skip
    """An answer; `follow_ups` are (question, response)."""
    return Answer(
        sample=Sample(id=id, prompt=prompt, reference=list(references) or None, meta=meta or {}, rubric=list(rubric)),
        response=Response(text=response, finished=finished),
        tokens=list(tokens),
        offsets=list(offsets),
        follow_ups=[FollowUp(question=question, response=Response(text=text)) for question, text in follow_ups],
        **measured,
    )
