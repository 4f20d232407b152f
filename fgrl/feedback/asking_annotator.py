"""Base class of annotators that ask a language model one question for each case: a sample, a response and a criterion,
or two responses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from fgrl.feedback.llm.asking import Question
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Annotator
from fgrl.types import Request, Sample


class AskingAnnotator(Prompted, Annotator):
    """Annotator that asks a language model about cases. A subclass defines its cases and the question about a case, so
    plans and runs always agree on what is asked.
    """

    @abstractmethod
    def cases(self, samples: Sequence[Sample]) -> tuple[Sequence[Any], dict[str, int]]:
        """Return the cases to ask about, in order, and counts of the input that yields no case."""

    @abstractmethod
    def question(self, template: Prompt, case: Any) -> Question[Any]:
        """Return the first question about a case."""

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        template = self.template()
        return [self.question(template, case).request for case in self.cases(given)[0]]
