"""Negatives by minimal modification: a response that satisfies a criterion, changed just enough to violate it ("Rubrics
to Tokens", section 4.1 and appendix C.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from fgrl.base import lazy
from fgrl.feedback.llm.asking import Asked, Question, ask, summary
from fgrl.feedback.llm.reading import Refused, declines
from fgrl.feedback.marks import responses
from fgrl.feedback.negatives import NegativeMaker, Target, draw, status
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.feedback.templates import Prompt, as_text
from fgrl.registry import register
from fgrl.types import Sample

distance = lazy.load("rapidfuzz.distance")

KEPT, UNDECIDED = "it still keeps the rule", "whether it breaks the rule is unknown"
UNCHANGED, TOO_FAR = "it is the response as it was", "it changes too much"
REASONS = {KEPT: "still kept", UNDECIDED: "undecided", UNCHANGED: "unchanged", TOO_FAR: "changed too much"}
"""Reasons why a rewrite cannot be used, with their names in the summary."""
HOW = "minimal_modification"


@register(HOW)
class MinimalModification(NegativeMaker):
    """A language model rewrites responses so that each violates one criterion of its rubric, with the smallest edits.

    Every rewrite becomes a separate sample; `meta` contains `negative`, `broken` (the criterion), `from`, `certain`
    (true if a rule decided that the criterion is violated) and `change` (the share of changed characters). If the
    criterion has a rule, a response that already violates it is not rewritten. A rewrite that does not violate it is
    requested again, and finally dropped and counted. In a response that is already a negative, its intentionally
    violated criterion counts as violated. The prompt file contains {criterion} and {response}, and may contain
    {prompt}: `prompts/rewrite_minimal.txt`.
    """

    placeholders: ClassVar[tuple[str, ...]] = ("prompt", "criterion", "response")
    required: ClassVar[tuple[str, ...]] = ("criterion", "response")

    per_response: int | None = Field(1, ge=1)
    """Number of criteria to violate per response, one per rewrite, drawn at random; null violates each criterion."""
    max_change: float = Field(0.5, gt=0, le=1)
    """Maximum share of characters that may change (normalized Levenshtein distance)."""

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: the number of `negatives`, and of those for which a rule is `certain`;
        the reasons for unusable rewrites; the outcomes of the questions; and criteria that were `broken already` or
        `undecided already`.
        """
        template, (targets, skipped) = self.template(), self.cases(samples)
        asked = ask(self.client, [self.question(template, target) for target in targets], self.tries)
        negatives = [
            (target, self._negative(target, answer.value))
            for target, answer in zip(targets, asked, strict=True)
            if answer.value is not None
        ]
        self._counted = {
            "negatives": len(negatives),
            "certain": sum(sample.meta["certain"] for _target, sample in negatives),
            **why(asked, REASONS),
            **summary(self.client, asked),
            **skipped,
        }
        return self.with_originals(samples, negatives)

    def cases(self, samples: Sequence[Sample]) -> tuple[list[Target], dict[str, int]]:
        rules = CriterionRules(self._run)
        targets: list[Target] = []
        skipped: Counter[str] = Counter()
        for owner, sample in enumerate(samples):
            own = [rules.get(criterion, sample.id) for criterion in sample.rubric]
            before = sample.meta.get("broken") if "negative" in sample.meta else None  # it is a negative itself
            skipped["without a rubric"] += not own
            for place, text in responses(sample):
                if not text.strip():
                    skipped["empty responses"] += 1
                    continue
                statuses = [
                    "broken" if (known := status(rule, text)) == "unknown" and before == criterion.text else known
                    for rule, criterion in zip(own, sample.rubric, strict=True)
                ]
                skipped["broken already"] += statuses.count("broken")
                skipped["undecided already"] += statuses.count("undecided")
                usable = [number for number, known in enumerate(statuses) if known in ("kept", "unknown")]
                made_of = f"{sample.id}/{place}"
                for number in draw(usable, self.per_response, self.seed, made_of):
                    targets.append(Target(owner, sample, number, own[number], made_of, text))
        return targets, {name: count for name, count in skipped.items() if count}

    def question(self, template: Prompt, case: Target) -> Question[str]:
        def read(text: str) -> str:
            return self._rewrite(case, text.strip())

        values = {
            "prompt": as_text(case.sample.prompt),
            "criterion": case.criterion.text,
            "response": case.response,
        }
        return Question(self.request(template, values, about=case.sample.id), read)

    def _rewrite(self, target: Target, text: str) -> str:
        """Return the rewrite if it can be used. Raise ValueError with the reason otherwise."""
        if not text:
            raise ValueError("it is empty")
        if declines(text) and not declines(target.response):
            raise Refused("it declines to rewrite")
        if text == target.response.strip():
            raise ValueError(UNCHANGED)
        changed = change(target.response, text)
        if changed > self.max_change:
            raise ValueError(f"{TOO_FAR}: {changed:.0%} of it, and {self.max_change:.0%} is allowed")
        known = target.status(text)
        if known in ("kept", "undecided"):
            raise ValueError(KEPT if known == "kept" else UNDECIDED)
        return text

    def _negative(self, target: Target, text: str) -> Sample:
        changed = round(change(target.response, text), 4)
        return self.negative(target, text, HOW, certain=target.rule is not None, change=changed)


def change(before: str, after: str) -> float:
    """Return the share of changed characters: Levenshtein distance divided by the longer length, without white space at
    the ends.
    """
    return float(distance.Levenshtein.normalized_distance(before.strip(), after.strip()))


def why(asked: Sequence[Asked[Any]], reasons: dict[str, str]) -> dict[str, int]:
    """Return counts of failures by the beginning of their reason."""
    counts = Counter(
        name for answer in asked for reason, name in reasons.items() if (answer.reason or "").startswith(reason)
    )
    return {name: counts[name] for name in reasons.values() if counts[name]}
