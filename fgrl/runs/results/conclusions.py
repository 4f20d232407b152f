"""Conclusions on a run, stored in its record: whether it learned, whether it exploits its reward, and the largest
changes.
"""

from __future__ import annotations

from typing import Any, Literal

from fgrl.base.visible import visible
from fgrl.measuring.answer import Answer
from fgrl.runs.results.text import number as as_text
from fgrl.types import Record

MOST_FINDINGS = 6
MOST_SHOWN = 200
"""Maximum number of characters of a text in an example."""
Status = Literal["good", "bad", "unsure", "unknown"]
SYMBOLS: dict[Status, str] = {"good": "✓", "bad": "✗", "unsure": "?", "unknown": "–"}
"""Symbols of the statuses, shown beside every colour."""


class Concluded(Record):
    """Conclusion with its certainty."""

    status: Status

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.status]


class Finding(Concluded):
    """Sentence with the numbers that support it."""

    text: str
    topic: str = ""

    @property
    def is_sign(self) -> bool:
        return self.status in ("bad", "unsure")


class Example(Record):
    """Answers before and after training to one prompt."""

    prompt: str
    before: str
    after: str

    @classmethod
    def of(cls, before: Answer, after: Answer) -> Example:
        return cls(prompt=_cut(after.question), before=_cut(before.text), after=_cut(after.text))


def _cut(text: str) -> str:
    return visible(text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…")


class Reply(Concluded):
    """Reply to a question, with its reasons."""

    question: str
    short: str
    findings: list[Finding]
    example: Example | None = None
    """Example of answers that have a sign; None if there is none."""

    @property
    def telling(self) -> list[Finding]:
        """Return the findings that decided: signs and open questions. If the reply is good nevertheless, the first good
        finding comes before them; if there are only good findings, the first of these.
        """
        order = sorted(self.findings, key=lambda each: (each.status != "bad", each.status != "unsure"))
        good = [each for each in order if each.status == "good"]
        others = [each for each in order if each.status != "good"]
        return [*(good[:1] if self.status == "good" else []), *others] if others else good[:MOST_FINDINGS]

    @property
    def rest(self) -> list[Finding]:
        """Return the other findings."""
        telling = self.telling
        return [each for each in self.findings if each not in telling]


class Change(Concluded):
    """Change of a number between a model and its state before training. `unknown`: neither side is better."""

    number: str
    stage: str
    words: str
    model: str
    before: float | None
    after: float | None
    effect: float | None
    """Mean of the differences per prompt / their standard deviation; None if all prompts have the same difference."""
    shown: str
    """Both values, with the decimals of their number."""

    @property
    def size(self) -> str:
        return "the same on every prompt" if self.effect is None else f"{as_text(abs(self.effect), 2)} SD"


class Conclusions(Record):
    """Conclusions on a run, shown on the first screen of its page."""

    replies: list[Reply] = []
    changes: list[Change] = []

    def lines(self) -> list[str]:
        """Return lines for a terminal: each question with its reply, and below it the deciding findings; if they are
        all good, only the first.
        """
        result = []
        for reply in self.replies:
            result.append(f"{reply.symbol} {reply.question} {reply.short}")
            only_good = all(each.status == "good" for each in reply.telling)
            told = reply.telling[:1] if only_good else reply.telling
            result += [f"    {each.symbol} {' '.join(each.text.split())}" for each in told]
            example = {} if reply.example is None else reply.example.model_dump()
            result += [f"      {name + ':':8}{' '.join(text.split())}" for name, text in example.items()]
        return result

    def as_json(self) -> dict[str, Any]:
        questions = [
            {
                "question": reply.question, "status": reply.status, "reply": reply.short,
                "example": reply.example and reply.example.model_dump(),
                "findings": [each.model_dump(include={"status", "text"}) for each in reply.findings],
            }
            for reply in self.replies
        ]  # fmt: skip
        return {"questions": questions, "changed_most": [each.model_dump(exclude={"shown"}) for each in self.changes]}
