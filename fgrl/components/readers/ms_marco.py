"""MS MARCO: questions from a search engine, the passages it found, and answers written by people."""

from __future__ import annotations

from typing import ClassVar, Literal

from fgrl.data.hub import HubPath
from fgrl.data.questions.answered import AnsweredQuestions, QuestionColumns
from fgrl.data.questions.source import Source
from fgrl.data.row import Row
from fgrl.feedback.templates import Prompt
from fgrl.registry import register


class MsMarcoColumns(QuestionColumns):
    """Column names of MS MARCO; the defaults are the names on the hub. Dots select nested columns."""

    id: str | None = "query_id"
    question: str = "query"
    answers: str = "answers"
    """Column with the right answers."""
    well_formed: str = "wellFormedAnswers"
    """Column with answers that people rewrote so that they can be understood without the question."""
    context: str | None = "passages.passage_text"
    """Column with the passages of the search. Only read if the prompt file has {context}."""
    url: str | None = "passages.url"
    """Column with the source of each passage."""
    selected: str | None = "passages.is_selected"
    """Column with a mark for passages that were used for the answer."""
    kind: str | None = "query_type"
    """Column with the type under which the question is counted: DESCRIPTION, NUMERIC, ENTITY, LOCATION or PERSON."""


@register("ms_marco")
class MsMarco(AnsweredQuestions):
    """MS MARCO v2.1 (Bajaj et al. 2016), microsoft/ms_marco: RLA's training data (section 4.1).

    Columns: `query_id`, `query`, `query_type`, `answers` (a list, often one), `wellFormedAnswers` (a list, mostly
    empty), `passages` {`is_selected`, `passage_text`, `url`} (about ten each). Splits `train` (808,731 rows),
    `validation` (101,093) and `test` (101,092), which has no answers: evaluate on `validation`. Of the other rows more
    than a third are answered "No Answer Present."; they are left out. Files in the original form, where `passages` is a
    list of {`is_selected`, `passage_text`, `url`}, are read as well.
    """

    NO_ANSWERS: ClassVar[str] = "The test split of v2.1 has no answers: set `split: validation`."

    path: HubPath = "microsoft/ms_marco"
    config: str | None = "v2.1"
    """Configuration of the data set: v2.1 or v1.1."""
    columns: MsMarcoColumns = MsMarcoColumns()
    well_formed: Literal["ignore", "prefer", "add"] = "ignore"
    """Use of answers that were rewritten as whole sentences: ignore them, use them instead of the others where they
    exist, or add them to the others.
    """

    def answers(self, source: Source, row: Row) -> list[str]:
        plain = source.texts(row, "answers")
        if self.well_formed == "ignore":
            return plain
        # the original files write "[]" where there are none
        better = [] if source.value(row, "well_formed") == "[]" else source.texts(row, "well_formed")
        return (better or plain) if self.well_formed == "prefer" else list(dict.fromkeys([*better, *plain]))

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | ({"well_formed"} if self.well_formed != "ignore" else set())
