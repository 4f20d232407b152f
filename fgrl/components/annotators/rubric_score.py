"""Share of its prompt's rubric that a response satisfies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from fgrl.feedback.llm.asking import FAILURES
from fgrl.feedback.rules import rubrics
from fgrl.feedback.rules.rubrics import RubricChecker
from fgrl.kinds import Annotator, Expected
from fgrl.registry import register
from fgrl.types import Request, Sample


@register("rubric_score")
class RubricScore(RubricChecker, Annotator):
    """A response's score is the share of satisfied criteria (CSR), or 1 if all are satisfied and 0 otherwise (AON).

    A response with a missing verdict has no score, and is counted. `all_ranked` makes pairs of the scored responses.
    With `best`, the response with the highest score becomes the chosen one, and `sft` trains on it.
    """

    keeps_responses = True

    score: Literal["csr", "aon"] = "csr"
    """Score of a response: `csr` (Eq. 3 of "Rubrics to Tokens") or `aon` (Eq. 2)."""
    best: bool = False
    """Choose the response with the highest score (the first in case of a tie). Samples without any score are dropped
    and counted.
    """
    least: float = Field(0.0, ge=0, le=1)
    """Minimum score with `best`: samples whose best score is lower are dropped."""

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        owners = [sample for sample in samples for _ in sample.responses]
        texts = [response.text for sample in samples for response in sample.responses]
        checked = rubrics.by_response(self.check(owners, texts), len(texts))
        scores = [self._score([criterion.kept for criterion in own]) for own in checked]
        in_order = iter(scores)
        scored = [sample.with_scores([next(in_order) for _ in sample.responses]) for sample in samples]
        kept = list(self._best(scored)) if self.best else scored
        known = [score for score in scores if score is not None]
        self._counted = {
            "mean score": round(math.fsum(known) / len(known), 4) if known else None,
            "without a score": len(scores) - len(known),
            "dropped": len(samples) - len(kept),
        }
        return kept

    def asks_at_most(self, expected: Expected) -> int | None:
        return 0 if self.judge is None else None

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        return self.judge_requests([(sample, response.text) for sample in given for response in sample.responses])

    def counts(self) -> dict[str, Any]:
        """Return the counts: `mean score` of the scored responses, responses `without a score`, samples `dropped`, the
        judge's counts, and the number of its `questions` that were `answered`, which the stage's `max_missing` reads.
        """
        of_judge = {} if self.judge is None else self.judge.counts()
        counts = self._counted | {f"judge {name.replace('_', ' ')}": count for name, count in of_judge.items()}
        if "questions" in of_judge:
            missing = sum(of_judge.get(name, 0) for name in FAILURES)
            counts |= {"questions": int(of_judge["questions"]), "answered": int(of_judge["questions"] - missing)}
        return counts

    def _score(self, verdicts: Sequence[bool | None]) -> float | None:
        """Return the score of the verdicts; None if a missing verdict leaves the share unknown. Another verdict may
        still decide an AON.
        """
        if self.score == "aon":
            return rubrics.all_kept(verdicts)
        return None if None in verdicts else rubrics.share_kept(verdicts)

    def _best(self, samples: Sequence[Sample]) -> Iterator[Sample]:
        for sample in samples:
            scores = {
                place: response.score for place, response in enumerate(sample.responses) if response.score is not None
            }
            best = max(scores, key=scores.__getitem__, default=None)
            if best is not None and scores[best] >= self.least:
                yield sample.model_copy(update={"chosen": best})
