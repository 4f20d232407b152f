"""Token-level direct preference optimization, TDPO (arXiv 2404.11999), of a chosen response w and a rejected response l to a prompt x.

    u     = log(p(w) / ref(w)) - log(p(l) / ref(l))                 sums over tokens, as in DPO
    D(y)  = sum_t KL(ref(. | x, y_<t) || p(. | x, y_<t))            sequential KL (Eq. 11), over whole distributions
    TDPO1 = -log sigmoid(beta (u - (D(l) - D(w))))                  Eq. 15
    TDPO2 = -log sigmoid(beta (u - alpha (D(l) - sg(D(w)))))        Eq. 17; no gradient flows through sg

TDPO balances the KL of chosen and rejected responses; with DPO it grows faster on rejected responses.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fgrl import ReferencedAlgorithm, ops, register


@register("tdpo")
class TDPO(ReferencedAlgorithm):
    """DPO with the difference of sequential KLs in the margin."""

    data = "pairs"

    variant: Literal["tdpo1", "tdpo2"] = "tdpo2"
    """Variant of the loss. `tdpo1`: gradients flow through the KL of both responses. `tdpo2`: through the KL of the
    rejected response alone, weighted by `alpha`.
    """
    beta: float = Field(0.1, gt=0)
    """Strength of the constraint to stay near the reference."""
    alpha: float = Field(0.5, ge=0)
    """Weight of the KL terms in `tdpo2`."""

    def token_credit(self, model, batch):
        """Return implicit rewards, and the KL of each token, whose sum is the sequential KL; `fgrl inspect` and the
        report draw them.
        """
        both = self.compared(model, batch)
        return {"implicit_reward": self.beta * (both.logp - both.ref_logp), "kl": both.kl}

    def loss(self, model, batch):
        """Return the loss, the mean over all pairs of the optimizer step. Rows 2i are chosen, 2i+1 rejected."""
        both = self.compared(model, batch)
        log_ratio = ops.masked_sum(both.logp - both.ref_logp, batch.mask, dim=1)
        kl = ops.masked_sum(both.kl, batch.mask, dim=1)
        chosen, rejected = log_ratio[0::2], log_ratio[1::2]
        kl_chosen, kl_rejected = kl[0::2], kl[1::2]
        if self.variant == "tdpo1":
            further = kl_rejected - kl_chosen
        else:
            further = self.alpha * (kl_rejected - kl_chosen.detach())
        losses = ops.preference_loss(chosen - further, rejected, "dpo", self.beta)
        metrics = {
            "loss": float(losses.detach().mean()),
            "accuracy": float((chosen > rejected).float().mean()),
            "margin": float(self.beta * (chosen - rejected).detach().mean()),
            "kl_chosen": float(kl_chosen.detach().mean()),
            "kl_rejected": float(kl_rejected.detach().mean()),
        }
        return losses.sum() / (batch.total_rows / 2) * batch.scale, metrics
