"""Rewards from the rubrics of prompts: verdicts on criteria, and the tokens that they hang on ("Rubrics to Tokens").

Left out: weights of criteria, and partial credit for a criterion.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr

from fgrl import lazy, ops
from fgrl.kinds import Judge, Relevance, Reward, Run
from fgrl.registry import register
from fgrl.rules import rubrics
from fgrl.rules.of_criteria import RulesOf
from fgrl.types import Criterion, Mean, Rewards, Rollout, Sample

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("rubric")
class Rubric(Reward):
    """How much of its prompt's rubric a response keeps: hard criteria by their verifiers, soft ones by a judge.

    Without `relevance` the reward lies on the last token. With it each criterion has token rewards of its own, its verdict
    (+1 or -1) times each token's relevance, and the token reward is their mean.
    """

    reads_reference = False

    response: Literal["csr", "aon", "signed_csr"] = "csr"
    """Reward of the response. `csr`: the share of criteria that are kept (Eq. 3). `aon`: 1 when all are, else 0 (Eq. 2).
    `signed_csr`: 2 csr - 1, as the authors' release computes it."""
    judge: Judge | None = None
    """Decides criteria that have no verifier; null refuses prompts that have such criteria."""
    relevance: Relevance | None = None
    """Which tokens a verdict hangs on; null gives no rewards for single criteria."""
    max_criteria: int | None = Field(None, ge=1)
    """Only the first so many criteria of a rubric count, as 20 do in the authors' release; null counts all."""

    _rules: RulesOf = PrivateAttr(default_factory=RulesOf)

    def setup(self, run: Run) -> None:
        self._rules = RulesOf(run)
        for part in (self.judge, self.relevance):
            if part is not None:
                part.setup(run)

    def needs(self) -> frozenset[str]:
        return frozenset() if self.relevance is None else self.relevance.needs()

    def tokenizer(self) -> Any:
        return None if self.relevance is None else self.relevance.tokenizer()

    def fills(self) -> frozenset[str]:
        return frozenset({"verdict"} if self.relevance is None else {"verdict", "criterion"})

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        rubrics.check_prompts(samples, self._rules, self.judge, self.max_criteria)

    def judged(self, sample: Sample) -> list[Criterion]:
        return rubrics.judged(sample, self.max_criteria)

    def score(self, rollout: Rollout) -> Rewards:
        """1. verdicts, 2. the response's reward, 3. relevance, 4. token rewards. Shapes as in `Rewards`."""
        mask = rollout.mask
        # 1. the verdict on every criterion of every response: +1, -1, NaN
        checked = rubrics.check(rollout.samples, rollout.texts, self._rules, self.judge, self.max_criteria)
        places = _places([one.row for one in checked])
        width = max((place for _row, place in places), default=0) + 1
        verdict = torch.full((len(mask), width), float("nan"))
        for one, (row, place) in zip(checked, places, strict=True):
            if one.kept is not None:
                verdict[row, place] = 1.0 if one.kept else -1.0
        # 2. what the response is worth
        asked = torch.zeros(verdict.shape, dtype=torch.bool)
        for row, place in places:
            asked[row, place] = True
        csr, aon = satisfied(verdict), all_satisfied(verdict, asked)
        response = {"csr": csr, "aon": aon, "signed_csr": 2 * csr - 1}[self.response].to(mask.device)
        told = ~torch.isnan(verdict)
        metrics: dict[str, float] = {
            "csr": Mean((verdict == 1).sum(), told.sum()),
            "aon": Mean(aon.nansum(), (~torch.isnan(aon)).sum()),
            "criteria": float(asked.sum(dim=1).float().mean()),
            "missing_verdicts": Mean((asked & ~told).sum(), asked.sum()),
        }
        if self.judge is not None:
            metrics |= {f"judge_{name}": value for name, value in self.judge.counts().items()}
        if self.relevance is None:
            last = ops.segment_ends(torch.where(mask, 0, -1))
            token = torch.where(last, response.nan_to_num()[:, None], 0.0)
            return Rewards(response, token, last, verdict=verdict.to(mask.device), metrics=metrics)
        # 3. verdict x relevance, NaN where either is missing (r in section 4.2.2)
        criterion = torch.full((*verdict.shape, mask.shape[1]), float("nan"))
        began = time.perf_counter()
        weights = self.relevance.weigh(rollout, checked)
        metrics["seconds/relevance"] = time.perf_counter() - began
        unweighed, relevant, tokens = 0, 0.0, 0
        for (row, place), weight in zip(places, weights, strict=True):
            if weight is None:
                unweighed += 1
                continue
            relevant, tokens = relevant + float(weight.sum()), tokens + len(weight)
            criterion[row, place] = 0.0
            criterion[row, place, : len(weight)] = weight
        criterion = (criterion * verdict[:, :, None]).to(mask.device)
        metrics |= {"unweighed": Mean(unweighed, len(places)), "relevant": Mean(relevant, tokens)}
        metrics |= {f"relevance_{name}": value for name, value in self.relevance.counts().items()}
        # 4. every token's reward is the mean over the response's criteria
        known = ops.known_criteria(criterion, mask)[:, :, None] & mask[:, None, :]
        return Rewards(
            response, ops.masked_mean(criterion, known, dim=1), (known & (criterion != 0)).any(dim=1),
            criterion=criterion, verdict=verdict.to(mask.device), metrics=metrics,
        )  # fmt: skip


def _places(rows: Sequence[int]) -> list[tuple[int, int]]:
    """[b, c] of each: its response, and how many of that stand before it."""
    seen: Counter[int] = Counter()
    found = []
    for row in rows:
        found.append((row, seen[row]))
        seen[row] += 1
    return found


def satisfied(verdict: Tensor) -> Tensor:
    """CSR: the share of known verdicts [B,C] that are +1, [B] (Eq. 3); NaN where none is known."""
    told = ~torch.isnan(verdict)
    share = (verdict == 1).sum(dim=1) / told.sum(dim=1).clamp(min=1)
    return torch.where(told.any(dim=1), share, float("nan"))


def all_satisfied(verdict: Tensor, asked: Tensor) -> Tensor:
    """AON: 1 where all verdicts are +1, 0 where one is -1, [B] (Eq. 2); NaN where a missing one would decide.

    verdict: [B,C], NaN is missing or absent; asked: bool [B,C], False is absent.
    """
    broken = (verdict == -1).any(dim=1)
    unknown = (asked & torch.isnan(verdict)).any(dim=1) | ~asked.any(dim=1)
    return torch.where(broken, 0.0, torch.where(unknown, float("nan"), 1.0))
