"""TriviaQA: quiz questions, the names by which their answers go, and what a web search found."""

from __future__ import annotations

from typing import ClassVar

from fgrl.data.hub import HubPath
from fgrl.data.questions.answered import AnsweredQuestions, QuestionColumns
from fgrl.data.questions.source import Source
from fgrl.data.row import LeftOut, Row
from fgrl.feedback.templates import Prompt
from fgrl.registry import register

UNKNOWN = "<unk>"
"""What the test split has for an answer."""


class TriviaColumns(QuestionColumns):
    """Which column holds what; the defaults are the hub's. Dots reach into nested ones."""

    id: str | None = "question_id"
    question: str = "question"
    answers: str = "answer.value"
    """The right answer."""
    aliases: str = "answer.aliases"
    """Its other names."""
    context: str | None = "search_results.description"
    """What the search found: `search_results.description` (snippets), `search_results.search_context` (whole pages) or
    `entity_pages.wiki_context` (whole articles). Only read when the prompt file has {context}."""
    url: str | None = "search_results.url"
    """Where each passage is from (of articles: `entity_pages.title`)."""
    kind: str | None = "answer.type"
    """What the question is counted under: WikipediaEntity, Numerical, FreeForm, ..."""


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
    """Which configuration of the data set; with {context} in the prompt file `rc.web` or `unfiltered`."""
    split: str = "validation"
    """Which split; `validation[:10%]` works."""
    columns: TriviaColumns = TriviaColumns()
    aliases: bool = True
    """The answer's other names are right, too."""

    def answers(self, source: Source, row: Row) -> list[str]:
        answers = source.texts(row, "answers")
        if UNKNOWN in answers:
            raise LeftOut("without an answer")
        return list(dict.fromkeys([*answers, *(source.texts(row, "aliases") if self.aliases else [])]))

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | ({"aliases"} if self.aliases else set())
