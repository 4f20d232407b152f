"""Labels for every step of a response: training data for a process reward model (Text2Grad, appendix N)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import PrivateAttr

from fgrl.feedback import text_units
from fgrl.feedback.rules.text import CharRange
from fgrl.feedback.text_units import UnitKind
from fgrl.feedback.unit_labels import UnitLabeller
from fgrl.registry import register
from fgrl.types import Sample


@register("prm")
class StepLabels(UnitLabeller):
    """A language model labels every step of a response: 1 correct, -1 incorrect. Each step is a separate span.

    Steps are sentences, clauses, or the statements of a Python program (`fgrl.feedback.text_units`). A program that
    cannot be parsed is divided into its lines, and counted. The prompt file contains {units}, the steps with their
    numbers, and may contain {count}, {prompt}, {response}, {reference}, {tests} and {outcome}:
    `prompts/steps_summary.txt` checks steps against the reference, `prompts/steps_code.txt` by the outcome of the
    tests. An answer without exactly one label for each step is requested again, and finally missing.
    """

    version = 2

    allowed: ClassVar[tuple[int, ...]] = (1, -1)

    unit: UnitKind
    """Unit of a step: a sentence, a clause, or a statement of a program."""

    _unparsed: int = PrivateAttr(0)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        made = super().annotate(samples)
        if self.unit == "statement":
            programs = [case.response.text for case in self.cases(samples)[0]]
            self._unparsed = sum(not text_units.statements(text).parsed for text in programs)
        return made

    def counts(self) -> dict[str, Any]:
        """Return the counts of every annotator of units, and the programs that were `divided into lines` because they
        cannot be parsed.
        """
        return super().counts() | ({"divided into lines": self._unparsed} if self._unparsed else {})

    def divide(self, text: str) -> Sequence[CharRange]:
        return text_units.DIVIDE[self.unit](text)
