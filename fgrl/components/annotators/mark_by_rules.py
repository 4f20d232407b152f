"""Relevance labels from the rules themselves: no language model is asked ("Rubrics to Tokens", appendix C.3)."""

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
    """Each response with each criterion that has a check becomes a separate sample, whose spans (label 1) are the
    characters that the rule's verdict depends on.

    What must be there is marked where the rule is kept, what must not be there where it is broken; a rule about the
    whole response, and one that is broken nowhere in particular, marks all of it. `meta` holds `kept`, `scope`
    (`global`, `positive`, `negative`), `relevant` (`all`, `part`, `none`) and `group` (the rule's name). Criteria
    without a check, and verdicts that are undecided, give no sample and are counted.
    """

    taxonomy: bool = True
    """False marks what speaks for a criterion, or else against it, whatever the verdict, and a whole response never: as
    an annotator does who only looks for what is related (Table 4, greedy).
    """

    def by_samples(self) -> bool:
        return self.max_all is None

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: how many `labels`, of how many the criterion is `kept`, how much is
        relevant, and what gave no label.
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
    """Return what speaks for the rule, or else against it, with the label 1; nothing where the rule cannot say."""
    spans = rule.evidence(response) or rule.violations(response) or []
    return [span.model_copy(update={"label": 1.0}) for span in spans]
