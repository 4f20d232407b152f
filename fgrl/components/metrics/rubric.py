"""How much of their prompts' rubrics answers keep ("Rubrics to Tokens", sections 3.1 and 5.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr

from fgrl.errors import Undecided
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Compared, mean
from fgrl.evaluation.statistics import Measured
from fgrl.kinds import AtMost, Checked, Judge, ToDraw
from fgrl.registry import name_of, register
from fgrl.rules import rubrics
from fgrl.rules.criterion_rules import CriterionRules
from fgrl.rules.loose import loose
from fgrl.types import Request, Sample

JUDGED = "judged"
"""Stands for the kind of criteria that no rule decides."""


@dataclass(frozen=True)
class Verdict:
    """What became of a criterion in an answer; None is missing."""

    text: str
    kind: str
    strict: bool | None
    loose: bool | None


@register("rubric")
class RubricAccuracy(Compared):
    """How many answers keep their whole rubric, and how many criteria are kept; 0 to 1, papers print percent.

    aon: share of answers that keep every criterion (Eq. 2; instruction-level accuracy, IFEval's prompt level). csr: share of
    criteria that are kept (Eq. 3; rubric-level accuracy, IFEval's instruction level). aon_loose, csr_loose: the same where a
    rule may also be kept by one of IFEval's eight readings of the answer; judged criteria have one reading. missing: share of
    verdicts that nobody gave (an undecided rule, a failed judgement): they are left out of csr, and their answer of aon unless
    another criterion is broken. Several answers to a prompt are averaged, and drawn together in intervals. Of a conversation
    the first answer counts.
    """

    judge: Judge | None = None
    """Decides criteria that have no verifier; null refuses prompts that have such criteria."""
    average: Literal["criteria", "answers"] = "criteria"
    """What `csr` is a mean of. `criteria`: all criteria of all answers, as IFEval and IFBench count and as the paper's numbers
    do. `answers`: each answer's share, so that a long rubric weighs no more than a short one."""
    by: Literal["kind"] | None = None
    """`kind` also reports the strict csr of each kind of criterion: the verifier's name up to its colon, as in
    `csr length_constraints`, and `csr judged`."""

    _rules: CriterionRules = PrivateAttr(default_factory=CriterionRules)
    _out: Path | None = PrivateAttr(default=None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Any) -> None:
        self._rules, self._out = CriterionRules(run), run.out
        if self.judge is not None:
            self.judge.setup(run)

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        rubrics.check_prompts(samples, self._rules, self.judge)

    def counts(self) -> dict[str, Any]:
        """What became of the judge's questions."""
        return self._counts

    def asks(self, given: Mapping[str, Sequence[Answer]], *, baseline: str | None = None) -> list[Request]:
        return self._asks_about([(answer.sample, answer.text) for answers in given.values() for answer in answers])

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        return expected.about_each(lambda prompt, response: self._asks_about([(prompt, response)]))

    def _asks_about(self, responses: Sequence[tuple[Sample, str]]) -> list[Request]:
        """The judge's requests about responses, each with its prompt."""
        if self.judge is None:
            return []
        cases = [(prompt, text, criterion) for prompt, text in responses for criterion in rubrics.judged(prompt)]
        return self.judge.asks(cases)

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        every = [answer for found in answers.values() for answer in found]
        texts = [answer.text for answer in every]
        verdicts: list[list[Verdict]] = [[] for _ in every]
        for one in rubrics.check([answer.sample for answer in every], texts, self._rules, self.judge):
            verdicts[one.row].append(_verdict(one, texts[one.row]))
        if self.judge is not None:
            counts = self.judge.counts().items()
            self._counts = {k.replace("_", " "): int(n) if float(n).is_integer() else n for k, n in counts}
        result, start = {}, 0
        own: dict[str, list[list[Verdict]]] = {}
        for name, found in answers.items():
            own[name] = verdicts[start : start + len(found)]
            result[name] = self._numbers(found, own[name])
            start += len(found)
        self._record(answers, own)
        return result

    def _numbers(self, answers: Sequence[Answer], verdicts: Sequence[Sequence[Verdict]]) -> dict[str, Measured]:
        strict = [[one.strict for one in found] for found in verdicts]
        lenient = [[one.loose for one in found] for found in verdicts]
        numbers = {
            "aon": mean(answers, [_number(rubrics.all_kept(found)) for found in strict]),
            "csr": self._csr(answers, strict),
            "aon_loose": mean(answers, [_number(rubrics.all_kept(found)) for found in lenient]),
            "csr_loose": self._csr(answers, lenient),
            "missing": _pooled(answers, [[one is None for one in found] for found in strict]),
        }
        for kind in sorted({one.kind for found in verdicts for one in found}) if self.by == "kind" else ():
            own = [[one.strict for one in found if one.kind == kind] for found in verdicts]
            numbers[f"csr {kind}"] = self._csr(answers, own)
        return numbers

    def _csr(self, answers: Sequence[Answer], verdicts: Sequence[Sequence[bool | None]]) -> Measured:
        if self.average == "criteria":
            return _pooled(answers, verdicts)
        return mean(answers, [rubrics.share_kept(found) for found in verdicts])

    def _record(self, answers: Mapping[str, Sequence[Answer]], verdicts: Mapping[str, list[list[Verdict]]]) -> None:
        """Every verdict, in `verdicts-<name>.jsonl`."""
        if self._out is None:
            return
        path = self._out / f"verdicts-{self.slug}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for name, found in answers.items():
                seen: dict[str, int] = {}
                for answer, told in zip(found, verdicts[name], strict=True):
                    number = seen[answer.id] = seen.get(answer.id, -1) + 1
                    for one in told:
                        line = {"model": name, "id": answer.id, "answer": number, "criterion": one.text}
                        line |= {"kind": one.kind, "strict": one.strict, "loose": one.loose}
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _pooled(answers: Sequence[Answer], verdicts: Sequence[Sequence[bool | None]]) -> Measured:
    """The share of all known verdicts of all answers, resampled by prompt."""
    known = [sum(one is not None for one in found) for found in verdicts]
    return mean(answers, [rubrics.share_kept(found) for found in verdicts], known)


def _verdict(one: Checked, text: str) -> Verdict:
    if one.rule is None:
        return Verdict(one.criterion.text, JUDGED, one.kept, one.kept)
    try:
        lenient = True if one.kept else loose(one.rule, text)
    except Undecided:
        lenient = None
    return Verdict(one.criterion.text, name_of(one.rule)[1].partition(":")[0], one.kept, lenient)


def _number(verdict: bool | None) -> float | None:
    return None if verdict is None else float(verdict)
