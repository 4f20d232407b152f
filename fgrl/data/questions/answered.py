"""Questions whose right answers are in the rows."""

from __future__ import annotations

from pydantic import model_validator

from fgrl.data.questions.context import ContextColumns
from fgrl.data.questions.question_set import QuestionSet
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import LeftOut, Row
from fgrl.feedback.templates import Prompt
from fgrl.types import PairVerdict


class QuestionColumns(ContextColumns):
    """Which column holds what; dots reach into nested ones (`answer.aliases`)."""

    question: str = "question"
    """What is asked."""
    answers: str = "answers"
    """The right answers: a text or a list of texts."""
    context: str | None = "context"
    """What a search found: a text, or a list of passages. Only read when the prompt file has {context}."""
    responses: list[str] = []
    """Columns with a response each, which models or people gave to the question: they become the sample's responses, in
    this order. A single one is the chosen response.
    """
    better: str | None = None
    """Which of two `responses` is better: it becomes the sample's verdict, of which the pair builder `judged` makes a
    pair. `better_labels` specifies what it contains.
    """


class AnsweredQuestions(QuestionSet):
    """Rows with a question, its right answers and, for {context}, passages."""

    columns: QuestionColumns = QuestionColumns()
    better_labels: list[str] = []
    """What `columns.better` contains when the first response is better, and when the second one is. Rows with anything
    else are left out and counted.
    """

    @model_validator(mode="after")
    def _two_responses_to_compare(self) -> AnsweredQuestions:
        if (self.columns.better is None) != (not self.better_labels):
            raise ValueError("better_labels: goes with columns.better")
        if self.columns.better is not None and (len(self.columns.responses), len(set(self.better_labels))) != (2, 2):
            raise ValueError("columns.better: compares two columns.responses, and needs two different better_labels")
        return self

    def names(self) -> dict[str, str | None]:
        listed = {f"responses.{place}": name for place, name in enumerate(self.columns.responses)}
        return {role: name for role, name in super().names().items() if role != "responses"} | listed

    def needed(self, prompt: Prompt) -> set[str]:
        given = {f"responses.{place}" for place in range(len(self.columns.responses))}
        return super().needed(prompt) | {"answers"} | given | ({"better"} if self.columns.better else set())

    def item(self, source: Source, row: Row) -> Item:
        question = source.text(row, "question")
        answers = self.usable(self.answers(source, row))
        responses = [source.text(row, f"responses.{place}") for place in range(len(self.columns.responses))]
        verdicts = [self._verdict(source, row)] if self.better_labels else None
        return Item(question, {"question": question}, answers, responses=responses, verdicts=verdicts)

    def answers(self, source: Source, row: Row) -> list[str]:
        """Return the right answers as they are in the row, refusals among them. Raises `BadRow`."""
        return source.texts(row, "answers")

    def _verdict(self, source: Source, row: Row) -> PairVerdict:
        """Which of the two responses is better, according to the row. Raises `LeftOut` where it does not say."""
        value = source.value(row, "better")
        if value not in self.better_labels:
            raise LeftOut("without a preference")
        return PairVerdict(first=0, second=1, verdict="second" if self.better_labels.index(value) else "first")
