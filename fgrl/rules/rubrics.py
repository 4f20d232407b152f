"""Rubrics and the verdicts on their criteria: hard ones are decided by their verifiers, soft ones by a judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fgrl.errors import DataError
from fgrl.kinds import Checked, Judge, Verifier
from fgrl.rules.criterion_rules import CriterionRules
from fgrl.types import Criterion, Sample


def criteria(sample: Sample, most: int | None = None) -> list[Criterion]:
    """The first `most` criteria of a prompt (None: all). Raises `DataError` when it has none."""
    if not sample.rubric:
        raise DataError(
            f"sample {sample.id} has no rubric, so there is nothing for a response to keep: give each prompt criteria, as "
            '{"text": ..., "check": {"name": a verifier, ...}} in its `rubric` (a file of `format: records` has them)'
        )
    return sample.rubric[:most]


def judged(sample: Sample, most: int | None = None) -> list[Criterion]:
    """Those of the first `most` criteria (None: all) that no verifier decides."""
    return [criterion for criterion in sample.rubric[:most] if criterion.check is None]


def rule_of(criterion: Criterion, sample: Sample, rules: CriterionRules, judge: Judge | None) -> Verifier | None:
    """What decides a criterion; None is the judge. Raises `DataError` when nothing can."""
    rule = rules.get(criterion, sample.id)
    if rule is None and judge is None:
        raise DataError(
            f"sample {sample.id}: no verifier decides {criterion.text!r}: set `judge` beside `name: rubric`, or give the "
            "criterion a `check`"
        )
    return rule


def check_prompts(
    samples: Sequence[Sample], rules: CriterionRules, judge: Judge | None, most: int | None = None
) -> None:
    """Raise `DataError` when a prompt has no rubric, or one of its criteria cannot be decided."""
    for sample in samples:
        for criterion in criteria(sample, most):
            rule_of(criterion, sample, rules, judge)


def check(
    samples: Sequence[Sample], texts: Sequence[str], rules: CriterionRules, judge: Judge | None, most: int | None = None
) -> list[Checked]:
    """Every criterion of every response with its verdict, by response (`row`), then in the rubric's order.

    The judge is asked once for all, and called also where there is nothing to ask: in a distributed stage other processes
    may have something.
    """
    checked: list[Checked] = []
    for row, (sample, text) in enumerate(zip(samples, texts, strict=True)):
        for criterion in criteria(sample, most):
            rule = rule_of(criterion, sample, rules, judge)
            checked.append(Checked(row, criterion, rule, None if rule is None else rule.verdict(text)))
    if judge is None:
        return checked
    soft = [place for place, criterion in enumerate(checked) if criterion.rule is None]
    cases = [(samples[checked[place].row], texts[checked[place].row], checked[place].criterion) for place in soft]
    for place, kept in zip(soft, judge.decide(cases), strict=True):
        checked[place] = replace(checked[place], kept=kept)
    return checked


def all_kept(verdicts: Sequence[bool | None]) -> bool | None:
    """AON: are all criteria satisfied ("Rubrics to Tokens", Eq. 2)? None where a missing verdict would decide, or where
    there is no verdict at all."""
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def share_kept(verdicts: Sequence[bool | None]) -> float | None:
    """CSR: the share of the known verdicts that are True ("Rubrics to Tokens", Eq. 3); None where none is known."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else None
