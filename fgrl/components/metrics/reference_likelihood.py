"""Likelihood of the answers under the reference model."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean_per_token, per_token
from fgrl.measuring.statistics import Measured, lower_tail_mean
from fgrl.registry import register


@register("reference_likelihood")
class ReferenceLikelihood(Comparison):
    """Log-likelihood of the answers under the reference, in nats per token.

    `per_token` is over all tokens of all answers. Its value is far below that of the reference's own answers for
    incoherent text, and above it for text that repeats itself (see `repetition`). `worst_tenth` is the mean over the
    tenth of the answers with the lowest value per token, which an average hides.
    """

    purpose = "symptom"
    meanings = {
        "per_token": Meaning("log-likelihood under the reference, nats per token"),
        "worst_tenth": Meaning("log-likelihood under the reference of the least likely tenth of the answers"),
    }

    def needs(self) -> frozenset[str]:
        return frozenset({"ref_logp"})

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        sums = [answer.ref_logp for answer in answers]
        return {
            "per_token": mean_per_token(answers, sums),
            "worst_tenth": lower_tail_mean(per_token(answers, sums), [answer.id for answer in answers], 0.1),
        }
