"""Strict and loose, as IFEval scores them, and which characters a rule is about."""

from __future__ import annotations

from fgrl.errors import Undecided
from fgrl.kinds import Verifier
from fgrl.rules.rule import kept_at
from fgrl.types import Span


def variants(response: str) -> list[str]:
    """IFEval's eight readings of a response (Zhou et al. 2023, section 2.2): as it is, without its first line, its last or
    both (an introduction, a closing remark), and each without asterisks (markdown). The response itself comes first."""
    lines = response.split("\n")
    cut = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return cut + [text.replace("*", "") for text in cut]


def loose(rule: Verifier, response: str) -> bool:
    """Does any reading of the response keep the rule? (`rule.check` is the strict verdict.) An empty reading never does.
    Raises `Undecided` when no reading does and one of them is undecided."""
    missing: Undecided | None = None
    for text in variants(response):
        try:
            if text.strip() and rule.check(text):
                return True
        except Undecided as undecided:
            missing = missing or undecided
    if missing is not None:
        raise missing
    return False


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
