"""Answers that keep a rule against answers that break it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import Field

from fgrl.feedback.response_pairs import ResponsePairs, distinct
from fgrl.kinds import Verifier
from fgrl.registry import register
from fgrl.types import Pair, Response, Sample


@register("by_rule")
class ByRule(ResponsePairs):
    """Responses to a prompt that keep a rule are preferred to those that break it.

    A text that was drawn several times is one response. Pairs use different responses as far as there are any; then
    members repeat, those used least first, and no pair twice. Which ones depends on `seed` and the sample's id alone.
    Responses of which the rule is undecided are left out.
    """

    rule: Verifier
    """The rule."""
    max_per_prompt: int = Field(4, ge=1)
    """At most this many pairs of one prompt."""
    match_length: bool = False
    """Of the usable responses take those whose lengths (in characters) are closest, so that the pairs differ in the
    rule and less in length, which a reward model would learn instead."""
    seed: int = 0
    """Which responses are taken when there are more than needed."""

    def build(self, sample: Sample) -> list[Pair]:
        kept, broken = self._sides(distinct(self.usable(sample)))
        places = [(i, j) for i in range(len(kept)) for j in range(len(broken))]
        random.Random(f"{self.seed} {sample.id}").shuffle(places)
        used_kept, used_broken = [0] * len(kept), [0] * len(broken)
        pairs: list[Pair] = []
        while places and len(pairs) < self.max_per_prompt:

            def cost(place: tuple[int, int]) -> tuple[int, int]:
                i, j = place
                apart = abs(len(kept[i].text) - len(broken[j].text)) if self.match_length else 0
                return used_kept[i] + used_broken[j], apart

            best = min(places, key=cost)
            places.remove(best)
            used_kept[best[0]] += 1
            used_broken[best[1]] += 1
            chosen, rejected = kept[best[0]], broken[best[1]]
            failed = [rule for rule, keeps in self.rule.verdicts(rejected.text).items() if keeps is False]
            scores = {"chosen_score": chosen.score, "rejected_score": rejected.score}
            pairs.append(self.pair(sample, len(pairs), chosen, rejected, **scores, broken=failed))
        return pairs

    def _sides(self, responses: Sequence[Response]) -> tuple[list[Response], list[Response]]:
        """Those that keep the rule, and those that break it."""
        kept: list[Response] = []
        broken: list[Response] = []
        for response in responses:
            verdict = self.rule.verdict(response.text)
            if verdict is not None:
                (kept if verdict else broken).append(response)
        return kept, broken
