"""Questions with answers in a table of one's own."""

from __future__ import annotations

from fgrl.data.columns import Row
from fgrl.data.question_set import ContextColumns, Item, QuestionSet, Source
from fgrl.registry import register
from fgrl.templates import Prompt


class QuestionColumns(ContextColumns):
    """Which column holds what; dots reach into nested ones (`answer.aliases`)."""

    question: str = "question"
    """What is asked."""
    answers: str = "answers"
    """The right answers: a text or a list of texts."""
    context: str | None = "context"
    """What a search found: a text, or a list of passages. Only read when the prompt file has {context}."""


@register("questions")
class Questions(QuestionSet):
    """A table with the columns `question`, `answers` (a text or a list) and, for {context}, `context` (likewise).

    `{name: questions, path: json, files: [questions.jsonl], prompt: ../prompts/rla_answer.txt}`
    """

    columns: QuestionColumns = QuestionColumns()
    """Which column holds what, where the usual names do not fit."""

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | {"answers"}

    def item(self, source: Source, row: Row) -> Item:
        question = source.text(row, "question")
        return Item(question, {"question": question}, self.usable(self.answers(source, row)))

    def answers(self, source: Source, row: Row) -> list[str]:
        """The right answers as they are in the row, refusals among them. Raises `BadRow`."""
        return source.texts(row, "answers")
