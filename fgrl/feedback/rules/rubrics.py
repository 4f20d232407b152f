"""Rubrics and the verdicts on their criteria: verifiers decide hard criteria, a judge decides soft ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fgrl.base.errors import DataError
from fgrl.feedback.rules.criterion_rules import UsesRules
from fgrl.kinds import AtMost, Checked, Judge, Verifier
from fgrl.types import Criterion, Request, Sample


class RubricChecker(UsesRules):
    """Settings of components that need the verdicts on the criteria of rubrics."""

    judge: Judge | None = None
    """Judge of criteria that have no verifier; null refuses prompts that have such criteria."""

    def criteria(self, sample: Sample) -> list[Criterion]:
        """Return the criteria of a prompt that count, by default all of them."""
        return sample.rubric

    def judged(self, sample: Sample) -> list[Criterion]:
        """Return the criteria that no verifier decides."""
        return [criterion for criterion in self.criteria(sample) if criterion.check is None]

    def judge_requests(self, responses: Sequence[tuple[Sample, str]]) -> list[Request]:
        """Return the judge's requests about responses, each with its prompt."""
        cases = [(prompt, text, criterion) for prompt, text in responses for criterion in self.judged(prompt)]
        return [] if self.judge is None else self.judge.asks(cases)

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        return expected.about_each(lambda prompt, response: self.judge_requests([(prompt, response)]))

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` if a prompt has no rubric, or one of its criteria cannot be decided."""
        for sample in samples:
            self._decided_by(sample)

    def check(self, samples: Sequence[Sample], texts: Sequence[str]) -> list[Checked]:
        """Return every criterion of every response with its verdict, by response (`row`), then in the rubric's order.

        The judge is called once for all of them. It is called even if there is nothing to ask: in a stage with several
        processes the others may have questions.
        """
        checked = [
            Checked(row, criterion, rule, None if rule is None else rule.verdict(text))
            for row, (sample, text) in enumerate(zip(samples, texts, strict=True))
            for criterion, rule in self._decided_by(sample)
        ]
        if self.judge is None:
            return checked
        soft = [place for place, criterion in enumerate(checked) if criterion.rule is None]
        cases = [(samples[checked[place].row], texts[checked[place].row], checked[place].criterion) for place in soft]
        for place, kept in zip(soft, self.judge.decide(cases), strict=True):
            checked[place] = replace(checked[place], kept=kept)
        return checked

    def _decided_by(self, sample: Sample) -> list[tuple[Criterion, Verifier | None]]:
        """Return each criterion that counts with its verifier; None for the judge. Raises `DataError` if nothing can
        decide it.
        """
        if not sample.rubric:
            raise DataError(
                f"sample {sample.id} has no rubric, so there is nothing for a response to keep: give each prompt criteria, "
                'as {"text": ..., "check": {"name": a verifier, ...}} in its `rubric` (a file of `format: records` has them)'
            )
        decided = [(criterion, self._rules.get(criterion, sample.id)) for criterion in self.criteria(sample)]
        for criterion, rule in decided:
            if rule is None and self.judge is None:
                raise DataError(
                    f"sample {sample.id}: no verifier decides {criterion.text!r}: set `judge` beside `name: rubric`, or give "
                    "the criterion a `check`"
                )
        return decided


def by_response(checked: Sequence[Checked], responses: int) -> list[list[Checked]]:
    """Return the checked criteria of each response, in the rubric's order. responses: number of responses."""
    groups: list[list[Checked]] = [[] for _ in range(responses)]
    for criterion in checked:
        groups[criterion.row].append(criterion)
    return groups


def all_kept(verdicts: Sequence[bool | None]) -> float | None:
    """Return 1 if all criteria are satisfied, else 0 (AON: "Rubrics to Tokens", Eq. 2). None if a missing verdict would
    decide, or if there is no verdict at all.
    """
    if False in verdicts:
        return 0.0
    return None if None in verdicts or not verdicts else 1.0


def share_kept(verdicts: Sequence[bool | None]) -> float | None:
    """Return the share of the known verdicts that are True (CSR: "Rubrics to Tokens", Eq. 3); None if none is known."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else None
