"""How much of their prompts' rubrics answers satisfy ("Rubrics to Tokens", sections 3.1 and 5.4)."""

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
from fgrl.rules.rule import loose
from fgrl.types import Request, Sample

JUDGED = "judged"
"""The kind of criteria that no rule decides."""


@dataclass(frozen=True)
class CriterionVerdict:
    """A criterion decided for an answer; None is missing."""

    text: str
    kind: str
    strict: bool | None
    loose: bool | None


@register("rubric")
class RubricAccuracy(Compared):
    """How many answers satisfy their whole rubric, and how many criteria are satisfied; 0 to 1, papers print percent.

    aon: share of answers that satisfy every criterion (Eq. 2; instruction-level accuracy, IFEval's prompt level). csr: share of
    criteria that are satisfied (Eq. 3; rubric-level accuracy, IFEval's instruction level). aon_loose, csr_loose: the same where
    one of IFEval's eight variants of the answer is enough for a rule; judged criteria have no variants. missing: share of
    missing verdicts (an undecided rule, a failed judgement): they are left out of csr, and their answer of aon unless another
    criterion is violated. Several answers to a prompt are averaged, and drawn together in intervals. Of a conversation
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
        """The outcomes of the judge's questions."""
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
        every = [answer for own in answers.values() for answer in own]
        texts = [answer.text for answer in every]
        verdicts: list[list[CriterionVerdict]] = [[] for _ in every]
        for checked in rubrics.check([answer.sample for answer in every], texts, self._rules, self.judge):
            verdicts[checked.row].append(_verdict(checked, texts[checked.row]))
        if self.judge is not None:
            self._counts = {
                name.replace("_", " "): int(count) if float(count).is_integer() else count
                for name, count in self.judge.counts().items()
            }
        result, start = {}, 0
        by_model: dict[str, list[list[CriterionVerdict]]] = {}
        for name, own in answers.items():
            by_model[name] = verdicts[start : start + len(own)]
            result[name] = self._numbers(own, by_model[name])
            start += len(own)
        self._record(answers, by_model)
        return result

    def _numbers(
        self, answers: Sequence[Answer], verdicts: Sequence[Sequence[CriterionVerdict]]
    ) -> dict[str, Measured]:
        strict = [[verdict.strict for verdict in of_answer] for of_answer in verdicts]
        lenient = [[verdict.loose for verdict in of_answer] for of_answer in verdicts]
        numbers = {
            "aon": mean(answers, [_number(rubrics.all_kept(of_answer)) for of_answer in strict]),
            "csr": self._csr(answers, strict),
            "aon_loose": mean(answers, [_number(rubrics.all_kept(of_answer)) for of_answer in lenient]),
            "csr_loose": self._csr(answers, lenient),
            "missing": _pooled(answers, [[verdict is None for verdict in of_answer] for of_answer in strict]),
        }
        kinds = {verdict.kind for of_answer in verdicts for verdict in of_answer} if self.by == "kind" else set()
        for kind in sorted(kinds):
            own = [[verdict.strict for verdict in of_answer if verdict.kind == kind] for of_answer in verdicts]
            numbers[f"csr {kind}"] = self._csr(answers, own)
        return numbers

    def _csr(self, answers: Sequence[Answer], verdicts: Sequence[Sequence[bool | None]]) -> Measured:
        if self.average == "criteria":
            return _pooled(answers, verdicts)
        return mean(answers, [rubrics.share_kept(of_answer) for of_answer in verdicts])

    def _record(
        self, answers: Mapping[str, Sequence[Answer]], verdicts: Mapping[str, list[list[CriterionVerdict]]]
    ) -> None:
        """Every verdict, in `verdicts-<name>.jsonl`."""
        if self._out is None:
            return
        path = self._out / f"verdicts-{self.slug}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for name, own in answers.items():
                seen: dict[str, int] = {}
                for answer, of_answer in zip(own, verdicts[name], strict=True):
                    number = seen[answer.id] = seen.get(answer.id, -1) + 1
                    for verdict in of_answer:
                        line = {"model": name, "id": answer.id, "answer": number, "criterion": verdict.text}
                        line |= {"kind": verdict.kind, "strict": verdict.strict, "loose": verdict.loose}
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _pooled(answers: Sequence[Answer], verdicts: Sequence[Sequence[bool | None]]) -> Measured:
    """The share of all known verdicts of all answers, resampled by prompt."""
    known = [sum(verdict is not None for verdict in of_answer) for of_answer in verdicts]
    return mean(answers, [rubrics.share_kept(of_answer) for of_answer in verdicts], known)


def _verdict(checked: Checked, text: str) -> CriterionVerdict:
    if checked.rule is None:
        return CriterionVerdict(checked.criterion.text, JUDGED, checked.kept, checked.kept)
    try:
        lenient = True if checked.kept else loose(checked.rule, text)
    except Undecided:
        lenient = None
    kind = name_of(checked.rule)[1].partition(":")[0]
    return CriterionVerdict(checked.criterion.text, kind, checked.kept, lenient)


def _number(verdict: bool | None) -> float | None:
    return None if verdict is None else float(verdict)
