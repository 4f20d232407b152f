"""TruthfulQA: questions that people often answer wrongly."""

from __future__ import annotations

import random
from typing import Any, ClassVar, Literal

from fgrl.data.hub import HubPath
from fgrl.data.questions.context import ContextColumns
from fgrl.data.questions.question_set import QuestionSet
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import BadRow, Row, short
from fgrl.data.values import as_texts
from fgrl.feedback.templates import Prompt
from fgrl.registry import register


class TruthfulColumns(ContextColumns):
    """Column names of TruthfulQA; the defaults are the names on the hub. Dots select nested columns."""

    question: str = "question"
    """Column with the question."""
    choices: str | None = None
    """Column with the answer choices; null takes the task's column, `mc1_targets.choices` or `mc2_targets.choices`."""
    labels: str | None = None
    """Column with 1 for a right choice and 0 for a wrong one; null takes the task's column, `mc1_targets.labels` or
    `mc2_targets.labels`.
    """
    best: str = "best_answer"
    """Column with the best answer, for `task: generation`."""
    answers: str = "correct_answers"
    """Column with the right answers, for `task: generation`."""
    kind: str | None = "category"
    """Column with the category under which the question is counted; only available for `task: generation`."""


@register("truthful_qa")
class TruthfulQa(QuestionSet):
    """TruthfulQA (Lin et al. 2021), truthfulqa/truthful_qa: RLA's multiple-choice questions (section 4.2.3).

    Configuration `multiple_choice` has the columns `question`, `mc1_targets` {`choices`, `labels`} (one is right) and
    `mc2_targets` (several are); `generation` has `type`, `category`, `question`, `best_answer`, `correct_answers`,
    `incorrect_answers`, `source`. The only split is `validation`, 817 rows, so examples are drawn from it as well.
    There are no passages: `columns.context` names your own column.

    Choices are put into {choices}, numbered from 1. The reference is the number of the right one (`mc1`: `3`) or the
    list of them (`mc2`: `[1, 3, 4]`), as the prompts ask for; `meta` has `choices` and the numbers that are `correct`.
    The scores of these answers differ from scores that compare log-probabilities of the choices.
    """

    NO_PASSAGES: ClassVar[str] = "TruthfulQA has none; name your own column as `columns.context`."

    task: Literal["mc1", "mc2", "generation"] = "mc1"
    """Task: one right choice, several right choices, or an answer in words."""
    path: HubPath = "truthfulqa/truthful_qa"
    config: str | None = None
    """Configuration of the data set; null takes the task's configuration, `multiple_choice` or `generation`."""
    split: str = "validation"
    """Split of the data set; there is only one."""
    columns: TruthfulColumns = TruthfulColumns()
    choice_seed: int | None = 0
    """Seed for the order of the choices of each question; null keeps the data's order, in which right choices come
    first.
    """

    def hub_config(self) -> str | None:
        return self.config or ("generation" if self.task == "generation" else "multiple_choice")

    def fields(self) -> frozenset[str]:
        return super().fields() | ({"choices"} if self.task != "generation" else set())

    def example(self) -> str:
        if self.task == "generation":
            return super().example()
        return "Question: {question}\n{choices}\nAnswer: {answer}"

    def names(self) -> dict[str, str | None]:
        names = super().names()
        if self.task == "generation":
            return names | {"choices": None, "labels": None}
        for role in ("choices", "labels"):
            names[role] = names[role] or f"{self.task}_targets.{role}"
        return names

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | ({"answers"} if self.task == "generation" else {"choices", "labels"})

    def item(self, source: Source, row: Row) -> Item:
        question = source.text(row, "question")
        if self.task == "generation":
            right = [*source.texts(row, "best"), *source.texts(row, "answers")]
            return Item(question, {"question": question}, self.usable(list(dict.fromkeys(right))))
        pairs = self._pairs(source, row)
        if self.choice_seed is not None:
            random.Random(f"{self.choice_seed} {question}").shuffle(pairs)
        choices = [choice for choice, _ in pairs]
        correct = [number for number, (_, label) in enumerate(pairs, start=1) if label]
        if not correct or (self.task == "mc1" and len(correct) > 1):
            raise BadRow(f"{len(correct)} choices are right: `task: {self.task}` wants {'one' if correct else 'some'}")
        numbered = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, start=1))
        return Item(
            question,
            {"question": question, "choices": numbered},
            [str(correct[0] if self.task == "mc1" else correct)],
            {"choices": choices, "correct": correct},
        )

    def _pairs(self, source: Source, row: Row) -> list[tuple[str, Any]]:
        """Return each choice with its label, in the data's order."""
        choices = as_texts(source.value(row, "choices"), source.columns["choices"])
        labels = source.value(row, "labels")
        if not isinstance(labels, list) or len(labels) != len(choices) or not all(label in (0, 1) for label in labels):
            raise BadRow(
                f'"{source.columns["labels"]}" is {short(labels)}: wants 0 or 1 for each of {len(choices)} choices'
            )
        return [(" ".join(choice.split()), label) for choice, label in zip(choices, labels, strict=True)]
