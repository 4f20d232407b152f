"""Questions with their right answers in the rows."""

from __future__ import annotations

from pydantic import model_validator

from fgrl.data.questions.context import ContextColumns
from fgrl.data.questions.question_set import QuestionSet
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import LeftOut, Row
from fgrl.feedback.templates import Prompt
from fgrl.types import PairVerdict


class QuestionColumns(ContextColumns):
    """Names of the columns; dots reach into nested columns (`answer.aliases`)."""

    question: str = "question"
    """Column with the question."""
    answers: str = "answers"
    """Column with the right answers: a text or a list of texts."""
    context: str | None = "context"
    """Column with the results of a search: a text, or a list of passages. Read only if the prompt file has
    {context}.
    """
    responses: list[str] = []
    """Columns with one response each, from models or people. They become the sample's responses, in this order. A
    single response is the chosen one.
    """
    better: str | None = None
    """Column that tells which of two `responses` is better. It becomes the sample's verdict, of which the pair builder
    `judged` makes a pair. `better_labels` lists its values.
    """


class AnsweredQuestions(QuestionSet):
    """Reader of rows with a question, its right answers and, for {context}, passages."""

    columns: QuestionColumns = QuestionColumns()
    better_labels: list[str] = []
    """Value of `columns.better` if the first response is better, and its value if the second one is. Rows with any
    other value are left out and counted.
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
        """Return the right answers unchanged from the row, including refusals. Raises `BadRow`."""
        return source.texts(row, "answers")

    def _verdict(self, source: Source, row: Row) -> PairVerdict:
        """Return which of the two responses is better, according to the row. Raises `LeftOut` if the row does not
        tell.
        """
        value = source.value(row, "better")
        if value not in self.better_labels:
            raise LeftOut("without a preference")
        return PairVerdict(first=0, second=1, verdict="second" if self.better_labels.index(value) else "first")
