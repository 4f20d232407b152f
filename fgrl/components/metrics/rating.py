"""Grades that a judge gives to single answers, as in MT-Bench (Zheng et al. 2023, section 3.1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from fgrl.feedback.llm.asking import Question
from fgrl.feedback.llm.reading import Refused, bracketed, declines, strip_fences
from fgrl.feedback.templates import NONE, Prompt
from fgrl.kinds import Meaning, ToDraw
from fgrl.measuring.answer import Answer
from fgrl.measuring.judging import JudgedMetric, shares
from fgrl.measuring.statistics import Measured, weighted_mean
from fgrl.registry import register

LOWEST, HIGHEST = 1.0, 10.0


@register("rating")
class Rating(JudgedMetric):
    """Grades from 1 to 10 that a judge gives to every answer, and separately to each turn of a conversation.

    mark: the mean of all grades, like MT-Bench's score; turn_1, turn_2, ...: the mean of each turn. refused, unparsed,
    failed: shares of all questions; missing grades are left out of the means.
    """

    meanings = {
        "mark": Meaning("mean mark of the judge (1 to 10)", "higher"),
        "turn_*": Meaning("mean mark of the judge, {number}", "higher"),
    }

    placeholders = ("conversation", "question", "answer", "reference")
    required = ("question", "answer")

    references: Literal["alternatives", "turns"] = "alternatives"
    """Meaning of the samples' references: alternative right answers to the first turn, or one answer for each turn."""

    def calls(self, expected: ToDraw) -> int:
        prompts, turns = expected.size()
        return len(expected.models) * prompts * expected.per_prompt * turns

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        return ()

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        outcomes = self.put(self.plan(answers, baseline))
        most = max((about["turn"] for judged in outcomes.values() for about, _ in judged), default=1)
        result: dict[str, dict[str, Measured]] = {}
        for name in answers:
            judged = outcomes.get(name, [])
            ids = [about["id"] for about, _ in judged]
            result[name] = {"mark": weighted_mean([outcome.value for _, outcome in judged], ids)}
            for turn in range(1, most + 1) if most > 1 else ():
                marks = [outcome.value if about["turn"] == turn else None for about, outcome in judged]
                result[name][f"turn_{turn}"] = weighted_mean(marks, ids)
            result[name] |= shares([outcome for _, outcome in judged], ids)
        return result

    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[float]]]:
        prompt = self.template()
        return [
            ({"model": name, "id": answer.id, "turn": turn}, self._question(prompt, *texts))
            for name, own in answers.items()
            for answer in own
            for turn, texts in enumerate(self._turns(answer), start=1)
        ]

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return "own prompt: no benchmark's official number"

    def _turns(self, answer: Answer) -> Iterator[tuple[str, str, str, str]]:
        """Yield (earlier turns, question, answer, reference) of each turn."""
        per_turn = self.references == "turns"
        before = "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in answer.chat[:-1])
        turns = [(answer.question, answer.text), *((turn.question, turn.response.text) for turn in answer.follow_ups)]
        for place, (question, response) in enumerate(turns):
            references = answer.references[place : place + 1] if per_turn else answer.references if place == 0 else []
            yield before or NONE, question, response, "\n\n".join(references) or NONE
            before = "\n\n".join(filter(None, [before, f"[user]\n{question}", f"[assistant]\n{response}"]))

    def _question(
        self, prompt: Prompt, conversation: str, question: str, answer: str, reference: str
    ) -> Question[float]:
        values = {"conversation": conversation, "question": question, "answer": answer, "reference": reference}
        return Question(self.request(prompt, values, about=question[:100]), read_mark)


def read_mark(text: str) -> float:
    """Return the only grade in double brackets, as in `[[7]]`. An answer that is only a number, or JSON `{"rating":
    7}`, is read as well.

    Raises `Refused` for an answer without a grade that declines to judge, ValueError for any other answer without a
    grade and for grades outside of 1 to 10.
    """
    marks = bracketed(text)
    if len(marks) > 1:
        raise ValueError(f"it gives {len(marks)} different marks: wants one, as in [[7]]")
    mark = _number(next(iter(marks)) if marks else strip_fences(text))
    if mark is None:
        if not marks and declines(text):
            raise Refused("it declines to give a mark")
        raise ValueError("there is no mark in it: wants one at its end, as in [[7]]")
    if not LOWEST <= mark <= HIGHEST:
        raise ValueError(f"the mark {mark:g} is not between {LOWEST:g} and {HIGHEST:g}")
    return mark


def _number(text: str) -> float | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = value.get("rating") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
