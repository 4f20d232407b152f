"""Pairs of answers that satisfy a rule and answers that violate it."""

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
    """Responses to a prompt that satisfy a rule are preferred to those that violate it.

    A text that was drawn several times is one response. Pairs use different responses as long as there are enough.
    After that, the least used responses are used again, but no pair occurs twice. The choice depends only on `seed` and
    the sample's id. Responses for which the rule is undecided are left out.
    """

    rule: Verifier
    """Rule that decides the preference."""
    max_per_prompt: int = Field(4, ge=1)
    """Maximum number of pairs of one prompt."""
    match_length: bool = False
    """Use the responses whose lengths (in characters) are closest. The pairs then differ in the rule and less in
    length, which a reward model would learn instead.
    """
    seed: int = 0
    """Seed for the choice of responses if there are more than needed."""

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
        """Return the responses that satisfy the rule, and the responses that violate it."""
        kept: list[Response] = []
        broken: list[Response] = []
        for response in responses:
            verdict = self.rule.verdict(response.text)
            if verdict is not None:
                (kept if verdict else broken).append(response)
        return kept, broken
