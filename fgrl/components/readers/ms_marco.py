"""MS MARCO: questions that people put to a search engine, the passages it found, and answers that people wrote."""

from __future__ import annotations

from typing import ClassVar, Literal

from fgrl.data.hub import HubPath
from fgrl.data.questions.answered import AnsweredQuestions, QuestionColumns
from fgrl.data.questions.source import Source
from fgrl.data.row import Row
from fgrl.feedback.templates import Prompt
from fgrl.registry import register


class MsMarcoColumns(QuestionColumns):
    """Which column holds what; the defaults are the hub's. Dots reach into nested ones."""

    id: str | None = "query_id"
    question: str = "query"
    answers: str = "answers"
    """The right answers."""
    well_formed: str = "wellFormedAnswers"
    """Answers that people rewrote to be understood without the question."""
    context: str | None = "passages.passage_text"
    """What the search found. Only read when the prompt file has {context}."""
    url: str | None = "passages.url"
    """Where each passage is from."""
    selected: str | None = "passages.is_selected"
    """Whether a passage was used for the answer."""
    kind: str | None = "query_type"
    """What the question is counted under: DESCRIPTION, NUMERIC, ENTITY, LOCATION or PERSON."""


@register("ms_marco")
class MsMarco(AnsweredQuestions):
    """MS MARCO v2.1 (Bajaj et al. 2016), microsoft/ms_marco: what RLA is trained on (section 4.1).

    Columns: `query_id`, `query`, `query_type`, `answers` (a list, often one), `wellFormedAnswers` (a list, mostly
    empty), `passages` {`is_selected`, `passage_text`, `url`} (about ten each). Splits `train` (808,731 rows),
    `validation` (101,093) and `test` (101,092), which has no answers: evaluate on `validation`. Of the other rows more
    than a third are answered "No Answer Present."; they are left out. Files in the original form, where `passages` is a
    list of {`is_selected`, `passage_text`, `url`}, are read as well.
    """

    NO_ANSWERS: ClassVar[str] = "The test split of v2.1 has no answers: set `split: validation`."

    path: HubPath = "microsoft/ms_marco"
    config: str | None = "v2.1"
    """Which configuration of the data set: v2.1 or v1.1."""
    columns: MsMarcoColumns = MsMarcoColumns()
    well_formed: Literal["ignore", "prefer", "add"] = "ignore"
    """Answers that were written anew as whole sentences: leave them, take them alone where there are any, or take them
    beside the others."""

    def answers(self, source: Source, row: Row) -> list[str]:
        plain = source.texts(row, "answers")
        if self.well_formed == "ignore":
            return plain
        # the original files write "[]" where there are none
        better = [] if source.value(row, "well_formed") == "[]" else source.texts(row, "well_formed")
        return (better or plain) if self.well_formed == "prefer" else list(dict.fromkeys([*better, *plain]))

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | ({"well_formed"} if self.well_formed != "ignore" else set())
