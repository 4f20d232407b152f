"""pass@k: the probability that at least one of k programs passes its tests (Chen et al. 2021, section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, field_validator

from fgrl.base.errors import DataError
from fgrl.feedback.rules.criterion_rules import UsesRules
from fgrl.feedback.rules.programs.testing import ProgramTests
from fgrl.feedback.rules.rubrics import all_kept
from fgrl.kinds import Meaning, Verifier
from fgrl.measuring.answer import Answer, by_prompt
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured, weighted_mean
from fgrl.registry import register
from fgrl.types import Sample, Span

AtLeastOne = Annotated[int, Field(ge=1)]


@register("pass_at_k")
class PassAtK(UsesRules, Comparison):
    """Probability that at least one of k answers passes, by the unbiased estimator; the mean over problems, 0 to 1.

    If c of n answers to a problem pass, pass@k = 1 - C(n-c, k) / C(n, k). An answer passes if it satisfies every
    criterion of its prompt's rubric that a verifier decides (usually one, `code:tests`). The evaluation needs at least
    k answers per prompt (`per_prompt`). Intervals resample problems. missing: the share of answers whose verdict is
    missing (the tests could not be run); they are left out, and a problem with fewer than k remaining answers has no
    pass@k. unreplayed: the share of answers whose pass could not be confirmed by a replay without the program
    (`unreplayed` of the tests); it rises if a policy games its tests.
    """

    meanings = {
        "pass@*": Meaning("share of problems solved ({number})", "higher"),
        "missing": Meaning("share of answers whose tests could not be run", "lower"),
        "unreplayed": Meaning("share of answers whose pass could not be confirmed", "lower"),
    }

    k: list[AtLeastOne] = Field([1], min_length=1)
    """Values of k, for example [1, 10, 100]."""

    @field_validator("k")
    @classmethod
    def _distinct(cls, k: list[int]) -> list[int]:
        if len(set(k)) < len(k):
            raise ValueError(f"{k}: wants each number once")
        return k

    def check_answers(self, per_prompt: int) -> None:
        if max(self.k) > per_prompt:
            raise ValueError(
                f"pass@{max(self.k)} needs {max(self.k)} answers per prompt, and {per_prompt} "
                f"{'is' if per_prompt == 1 else 'are'} drawn: set `per_prompt: {max(self.k)}` or more"
            )

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            self._check_rubric(sample)

    def verdict(self, answer: Answer) -> tuple[bool | None, list[Span]] | None:
        """Return the verdict on an answer. The tests remember their verdict on a program, so it does not run again."""
        passes = self._passes(answer)
        return (None if passes is None else passes == 1), []

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        verdicts = {id(answer): self._passes(answer) for answer in answers}
        problems = by_prompt(answers)
        counts = {
            name: [verdict for answer in own if (verdict := verdicts[id(answer)]) is not None]
            for name, own in problems.items()
        }
        measured = {
            f"pass@{k}": weighted_mean([pass_at_k(len(own), int(sum(own)), k) for own in counts.values()], list(counts))
            for k in self.k
        }
        missing = mean(answers, [float(verdicts[id(answer)] is None) for answer in answers])
        unreplayed = mean(answers, [float(self._passes_unconfirmed(answer)) for answer in answers])
        return {**measured, "missing": missing, "unreplayed": unreplayed}

    def _passes(self, answer: Answer) -> float | None:
        """Return 1, 0, or None if a verdict is missing and no other verdict decides."""
        self._check_rubric(answer.sample)
        return all_kept([rule.verdict(answer.text) for rule in self._rules_of(answer)])

    def _passes_unconfirmed(self, answer: Answer) -> bool:
        """Return True if tests count as passed that were not replayed."""
        outcomes = [rule.tested(answer.text) for rule in self._rules_of(answer) if isinstance(rule, ProgramTests)]
        return any(outcome.passed and not outcome.replayed for outcome in outcomes)

    def _rules_of(self, answer: Answer) -> list[Verifier]:
        rules = [self._rules.get(criterion, answer.id) for criterion in answer.sample.rubric]
        return [rule for rule in rules if rule is not None]

    def _check_rubric(self, sample: Sample) -> None:
        if all(self._rules.get(criterion, sample.id) is None for criterion in sample.rubric):
            raise DataError(
                f"sample {sample.id} has no criterion that a verifier decides, so nothing tells whether an answer passes: read "
                "problems with tests (human_eval, mbpp, kodcode), or give the prompt a `rubric` with a `check`"
            )


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the estimator; None for n < k. n: number of answers, c: number of answers that pass."""
    return None if n < k else 1.0 - math.comb(n - c, k) / math.comb(n, k)
