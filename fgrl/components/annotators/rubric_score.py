"""How much of its prompt's rubric a response keeps."""

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
    """A response's score is the share of the criteria that it keeps (CSR), or 1 for all of them and else 0 (AON).

    A response of which a verdict is missing has no score, and is counted. `all_ranked` makes pairs of the scored
    responses; with `best` the one with the highest score is chosen, and `sft` trains on it.
    """

    keeps_responses = True

    score: Literal["csr", "aon"] = "csr"
    """Eq. 3 or Eq. 2 of "Rubrics to Tokens"."""
    best: bool = False
    """Choose the response with the highest score (the first of equal ones); samples of which no response has a score
    are dropped and counted.
    """
    least: float = Field(0.0, ge=0, le=1)
    """With `best`: drop samples whose best score is lower than this."""

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
        """`mean score` of the responses that have one, responses `without a score`, samples `dropped`, the judge's, and
        how many of its `questions` were `answered`, which the stage's `max_missing` reads.
        """
        of_judge = {} if self.judge is None else self.judge.counts()
        counts = self._counted | {f"judge {name.replace('_', ' ')}": count for name, count in of_judge.items()}
        if "questions" in of_judge:
            missing = sum(of_judge.get(name, 0) for name in FAILURES)
            counts |= {"questions": int(of_judge["questions"]), "answered": int(of_judge["questions"] - missing)}
        return counts

    def _score(self, verdicts: Sequence[bool | None]) -> float | None:
        """Return a verdict that is missing leaves the share unknown, unless another one decides an AON."""
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
