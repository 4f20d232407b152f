"""Which characters a rule's verdict depends on."""

from __future__ import annotations

from fgrl.kinds import Verifier
from fgrl.rules.rule import kept_at
from fgrl.types import Span


def relevant(rule: Verifier, response: str) -> list[Span]:
    """The characters on which the verdict depends, label +1: what an annotator after "Rubrics to Tokens", appendix C.3
    would mark, found without an annotator.

    Positive (something must be there): where it is, when the rule is kept, else nothing. Negative (something must not be
    there): where it is, when the rule is broken, else nothing. Global, and a rule that is broken nowhere in particular:
    the whole response. Raises `Undecided` when the verdict is.
    """
    whole = [kept_at(0, len(response), "the whole response")] if response else []
    scope = rule.scope()
    kept = rule.check(response)
    if scope == "global":
        return whole
    if kept != (scope == "positive"):
        return []
    spans = rule.evidence(response) if kept else rule.violations(response)
    return whole if spans is None else [span.model_copy(update={"label": 1.0}) for span in spans]
