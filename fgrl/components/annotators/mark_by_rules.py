"""Relevance labels from the rules themselves, without a language model ("Rubrics to Tokens", appendix C.3)."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.base.errors import Undecided
from fgrl.feedback.marks import Marker, cases, marked
from fgrl.feedback.rules.criterion_rules import UsesRules
from fgrl.feedback.rules.rule import relevant
from fgrl.kinds import Annotator, Verifier
from fgrl.registry import register
from fgrl.types import Sample, Span


@register("mark_by_rules")
class MarkByRules(UsesRules, Marker, Annotator):
    """Each response with each criterion that has a check becomes a separate sample. Its spans (label 1) are the
    characters on which the rule's verdict depends.

    A rule that requires something marks it if the rule is satisfied; a rule that forbids something marks it if the rule
    is violated. A rule on the whole response, and a violation without a place, mark the whole response. `meta` contains
    `kept`, `scope` (`global`, `positive`, `negative`), `relevant` (`all`, `part`, `none`) and `group` (the rule's
    name). Criteria without a check, and verdicts that are undecided, give no sample and are counted.
    """

    taxonomy: bool = True
    """If false, mark the characters that satisfy a criterion, or otherwise those that violate it, whatever the verdict,
    and never a whole response. This is like an annotator who only looks for related passages (Table 4, greedy).
    """

    def by_samples(self) -> bool:
        return self.max_all is None

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: the number of `labels`, of satisfied criteria (`kept`), the relevant
        share, and the cases without a label.
        """
        labelled = []
        all_cases, skipped = cases(samples)
        undecided = unchecked = 0
        for case in all_cases:
            rule = self._rules.get(case.criterion, case.sample.id)
            if rule is None:
                unchecked += 1
                continue
            try:
                kept = rule.check(case.response)
                spans = relevant(rule, case.response) if self.taxonomy else related(rule, case.response)
            except Undecided:
                undecided += 1
                continue
            labelled.append(marked(case, spans, rule, kept=kept))
        left, labels = self.select(labelled)
        skipped |= {"without a check": unchecked} if unchecked else {}
        skipped |= {"undecided": undecided} if undecided else {}
        self._counted = {**labels, "kept": sum(sample.meta["kept"] for sample in left), **skipped}
        return left


def related(rule: Verifier, response: str) -> list[Span]:
    """Return the characters that satisfy the rule, or otherwise those that violate it, with the label 1; an empty list
    if the rule cannot locate any.
    """
    spans = rule.evidence(response) or rule.violations(response) or []
    return [span.model_copy(update={"label": 1.0}) for span in spans]
