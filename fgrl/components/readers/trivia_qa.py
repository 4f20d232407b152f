"""TriviaQA: quiz questions, answers with their alternative names, and results of a web search."""

from __future__ import annotations

from typing import ClassVar

from fgrl.data.hub import HubPath
from fgrl.data.questions.answered import AnsweredQuestions, QuestionColumns
from fgrl.data.questions.source import Source
from fgrl.data.row import LeftOut, Row
from fgrl.feedback.templates import Prompt
from fgrl.registry import register

UNKNOWN = "<unk>"
"""Placeholder for the answer in the test split."""


class TriviaColumns(QuestionColumns):
    """Column names of TriviaQA; the defaults are the names on the hub. Dots select nested columns."""

    id: str | None = "question_id"
    question: str = "question"
    answers: str = "answer.value"
    """Column with the right answer."""
    aliases: str = "answer.aliases"
    """Column with other names of the answer."""
    context: str | None = "search_results.description"
    """Column with the passages of the search: `search_results.description` (snippets), `search_results.search_context`
    (whole pages) or `entity_pages.wiki_context` (whole articles). Only read if the prompt file has {context}.
    """
    url: str | None = "search_results.url"
    """Column with the source of each passage (for articles: `entity_pages.title`)."""
    kind: str | None = "answer.type"
    """Column with the type under which the question is counted: WikipediaEntity, Numerical, FreeForm, ..."""


@register("trivia_qa")
class TriviaQa(AnsweredQuestions):
    """TriviaQA (Joshi et al. 2017), mandarjoshi/trivia_qa: RLA's out-of-domain questions (section 4.2.2).

    Columns: `question`, `question_id`, `question_source`, `answer` {`value`, `aliases`, `normalized_aliases`,
    `normalized_value`, `type`, `matched_wiki_entity_name`, ...}, `search_results` {`description`, `filename`, `rank`,
    `title`, `url`, `search_context`}, `entity_pages` {`doc_source`, `filename`, `title`, `wiki_context`}. Splits
    `train`, `validation`, and `test`, whose answers are `<unk>`. Configurations `rc`, `rc.web`, `rc.wikipedia`,
    `unfiltered`, and each of them with `.nocontext`, which have no passages. `rc` has many questions twice, once with a
    search and once with articles; they are read once unless `repeated: keep`.
    """

    NO_ANSWERS: ClassVar[str] = "The test split has no answers: set `split: validation`."
    NO_PASSAGES: ClassVar[str] = "`config: rc.web` has search results, `rc.nocontext` has not."

    path: HubPath = "mandarjoshi/trivia_qa"
    config: str | None = "rc.nocontext"
    """Configuration of the data set; with {context} in the prompt file `rc.web` or `unfiltered`."""
    split: str = "validation"
    """Split of the data set; `validation[:10%]` works."""
    columns: TriviaColumns = TriviaColumns()
    aliases: bool = True
    """Accept the answer's other names as right answers."""

    def answers(self, source: Source, row: Row) -> list[str]:
        answers = source.texts(row, "answers")
        if UNKNOWN in answers:
            raise LeftOut("without an answer")
        return list(dict.fromkeys([*answers, *(source.texts(row, "aliases") if self.aliases else [])]))

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | ({"aliases"} if self.aliases else set())
