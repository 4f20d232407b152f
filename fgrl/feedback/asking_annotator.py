"""What annotators share that ask a language model one question for each case: a sample, or a response and a criterion."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from pydantic import PrivateAttr

from fgrl.kinds import Annotator, Client, Run
from fgrl.llm.asking import Question
from fgrl.templates import Prompt
from fgrl.types import Request, Sample


class AskingAnnotator(Annotator):
    """A subclass states its cases, the prompt file and the question about a case; plans and runs then agree on what is asked."""

    client: Client
    """The language model that is asked."""

    _run: Any = PrivateAttr(None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self._run = run
        self.client.setup(run)

    @abstractmethod
    def template(self) -> Prompt:
        """The prompt file, checked. Raises `DataError` for a placeholder that is unknown or missing."""

    @abstractmethod
    def cases(self, samples: Sequence[Sample]) -> tuple[Sequence[Any], dict[str, int]]:
        """What to ask about, in order, and counts of what gives no case."""

    @abstractmethod
    def question(self, template: Prompt, case: Any) -> Question[Any]:
        """The first question about a case."""

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        template = self.template()
        return [self.question(template, case).request for case in self.cases(given)[0]]

    def counts(self) -> dict[str, Any]:
        """The counts of the last `annotate`."""
        return self._counts
