"""The strict and the loose verdict, as IFEval scores them."""

from __future__ import annotations

from fgrl.errors import Undecided
from fgrl.kinds import Verifier


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
