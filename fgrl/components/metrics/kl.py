"""Distance of a model from the reference."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean, mean_per_token
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("kl")
class Kl(Comparison):
    """KL(model || reference) on the model's own answers, in nats per answer (`sum`) and per token (`per_token`)."""

    purpose = "symptom"
    meanings = {
        "sum": Meaning("KL to the reference, nats per answer"),
        "per_token": Meaning("KL to the reference, nats per token"),
    }

    def needs(self) -> frozenset[str]:
        return frozenset({"kl"})

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        sums = [answer.kl for answer in answers]
        return {"sum": mean(answers, sums), "per_token": mean_per_token(answers, sums)}
