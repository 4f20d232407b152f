"""Share of the criteria in their prompts' rubrics that answers satisfy ("Rubrics to Tokens", sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fgrl.base.errors import Undecided
from fgrl.base.files import write_json_lines
from fgrl.feedback.rules import rubrics
from fgrl.feedback.rules.rubrics import RubricChecker
from fgrl.feedback.rules.rule import loose
from fgrl.kinds import Checked, Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Compared, mean
from fgrl.measuring.statistics import Measured
from fgrl.registry import name_of, register
from fgrl.types import Request

JUDGED = "judged"
"""Name of the kind of criteria that no rule decides."""


@dataclass(frozen=True)
class CriterionVerdict:
    """Verdict on a criterion for an answer; None is missing."""

    criterion: str
    kind: str
    strict: bool | None
    loose: bool | None


@register("rubric")
class RubricAccuracy(RubricChecker, Compared):
    """Shares of answers that satisfy their whole rubric, and of criteria that are satisfied; 0 to 1, papers print
    percent.

    aon: share of answers that satisfy every criterion (Eq. 2; instruction-level accuracy, IFEval's prompt level). csr:
    share of criteria that are satisfied (Eq. 3; rubric-level accuracy, IFEval's instruction level). aon_loose,
    csr_loose: the same where one of IFEval's eight variants of the answer is enough for a rule; judged criteria have no
    variants. missing: share of missing verdicts (an undecided rule, a failed judgement). They are left out of csr, and
    their answer is left out of aon unless another criterion is violated. Several answers to a prompt are averaged, and
    resampled together for intervals. In a conversation only the first answer counts.
    """

    meanings = {
        "aon": Meaning("share of answers that satisfy their whole rubric", "higher"),
        "csr": Meaning("share of criteria that are satisfied", "higher"),
        "aon_loose": Meaning("share of answers that satisfy their whole rubric, checked loosely", "higher"),
        "csr_loose": Meaning("share of criteria that are satisfied, checked loosely", "higher"),
        "missing": Meaning("share of missing verdicts", "lower"),
        "csr *": Meaning("share of criteria of this kind that are satisfied ({number})", "higher"),
    }

    average: Literal["criteria", "answers"] = "criteria"
    """Unit of the mean `csr`. `criteria`: all criteria of all answers, as in IFEval, IFBench and the paper's numbers.
    `answers`: each answer's share, so that a long rubric weighs no more than a short one.
    """
    by: Literal["kind"] | None = None
    """Grouping of an additional report. `kind` reports the strict csr of each kind of criterion: the verifier's name up
    to its colon, as in `csr length_constraints`, and `csr judged`.
    """

    def asks(self, given: Mapping[str, Sequence[Answer]], *, baseline: str | None = None) -> list[Request]:
        return self.judge_requests([(answer.sample, answer.text) for answers in given.values() for answer in answers])

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        return ()

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        """Return the measures by model, and the outcomes of the judge's questions as counts."""
        every = [answer for own in answers.values() for answer in own]
        texts = [answer.text for answer in every]
        checked = rubrics.by_response(self.check([answer.sample for answer in every], texts), len(every))
        verdicts = [[_verdict(criterion, text) for criterion in own] for own, text in zip(checked, texts, strict=True)]
        if self.judge is not None:
            self._counted = {
                name.replace("_", " "): int(count) if float(count).is_integer() else count
                for name, count in self.judge.counts().items()
            }
        in_order = iter(verdicts)
        by_model = {name: [next(in_order) for _ in own] for name, own in answers.items()}
        self._record(answers, by_model)
        return {name: self._numbers(own, by_model[name]) for name, own in answers.items()}

    def _numbers(
        self, answers: Sequence[Answer], verdicts: Sequence[Sequence[CriterionVerdict]]
    ) -> dict[str, Measured]:
        strict = [[verdict.strict for verdict in of_answer] for of_answer in verdicts]
        lenient = [[verdict.loose for verdict in of_answer] for of_answer in verdicts]
        numbers = {
            "aon": mean(answers, [*map(rubrics.all_kept, strict)]),
            "csr": self._csr(answers, strict),
            "aon_loose": mean(answers, [*map(rubrics.all_kept, lenient)]),
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
        """Write every verdict to `verdicts-<name>.jsonl`."""
        if self._run is None:
            return
        lines = []
        for name, own in answers.items():
            seen: dict[str, int] = {}
            for answer, of_answer in zip(own, verdicts[name], strict=True):
                number = seen[answer.id] = seen.get(answer.id, -1) + 1
                lines += [
                    {"model": name, "id": answer.id, "answer": number, **asdict(verdict)} for verdict in of_answer
                ]
        write_json_lines(self._run.out / f"verdicts-{self.slug}.jsonl", lines)


def _pooled(answers: Sequence[Answer], verdicts: Sequence[Sequence[bool | None]]) -> Measured:
    """Return the share of satisfied criteria among all known verdicts of all answers, resampled by prompt."""
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
