"""Questions whose right answers are in the rows."""

from __future__ import annotations

from fgrl.data.questions.context import ContextColumns
from fgrl.data.questions.question_set import QuestionSet
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import Row
from fgrl.templates import Prompt


class QuestionColumns(ContextColumns):
    """Which column holds what; dots reach into nested ones (`answer.aliases`)."""

    question: str = "question"
    """What is asked."""
    answers: str = "answers"
    """The right answers: a text or a list of texts."""
    context: str | None = "context"
    """What a search found: a text, or a list of passages. Only read when the prompt file has {context}."""


class AnsweredQuestions(QuestionSet):
    """Rows with a question, its right answers and, for {context}, passages."""

    columns: QuestionColumns = QuestionColumns()

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | {"answers"}

    def item(self, source: Source, row: Row) -> Item:
        question = source.text(row, "question")
        return Item(question, {"question": question}, self.usable(self.answers(source, row)))

    def answers(self, source: Source, row: Row) -> list[str]:
        """The right answers as they are in the row, refusals among them. Raises `BadRow`."""
        return source.texts(row, "answers")
