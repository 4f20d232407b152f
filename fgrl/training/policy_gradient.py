"""Common parts of PPO and GRPO: the clipped surrogate, a KL to the reference in the loss, an entropy bonus, and their
metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers, OnlineAlgorithm
from fgrl.types import Aggregation, Batch, Most, Tokens

if TYPE_CHECKING:
    from torch import Tensor
models = lazy.load("fgrl.models")
rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")


class PolicyGradient(OnlineAlgorithm):
    """Clipped policy gradient (Schulman et al. 2017, Eq. 7). A subclass defines the advantages."""

    clip: float = Field(0.2, gt=0, le=1e6)
    """Bound of the probability ratio, which is clipped to 1 +- clip."""
    clip_high: float | None = Field(None, gt=0, le=1e6)
    """Upper bound of the ratio, 1 + clip_high, if it differs from `clip`."""
    kl_coef: float = Field(0.0, ge=0, le=100)
    """Coefficient of the KL to the reference, per nat; 0 needs no reference."""
    kl: Literal["k1", "k2", "k3", "full"] = "k3"
    """Estimator of KL(policy || reference) per token."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Place of the KL: `loss` adds it to the loss; `reward` subtracts from each token's advantage the KL from that
    token to the end of the response.
    """
    entropy_coef: float = Field(0.0, ge=0, le=100)
    """Coefficient of an entropy bonus (a bonus: it is subtracted from the loss)."""
    aggregate: Aggregation = "seq_mean"
    """Average of the loss: over tokens and then over responses (`seq_mean`), over all tokens (`token_mean`), or its sum
    over all tokens divided by the planned number of responses of a step (`sum`). Only `sum` divides by a number that
    does not depend on the drawn responses. The others change the gradient if the policy decides about lengths or about
    the number of turns. Their losses are smaller, so `sum` needs a lower learning rate.
    """

    @model_validator(mode="after")
    def _check_kl(self) -> PolicyGradient:
        if self.kl == "k1" and self.kl_in == "loss" and self.kl_coef:
            raise ValueError("the gradient of k1 is zero on average; with kl_in: loss use kl: k2 or k3")
        return self

    def current_kl_coef(self) -> float:
        """Return the coefficient of the KL at this point of the training."""
        return self.kl_coef

    def policy_loss(
        self, batch: Batch, *, logp: Tensor, old_logp: Tensor, entropy: Tensor | None
    ) -> tuple[Tensor, Numbers]:
        """Return the share of `batch` in the policy's loss of the optimizer step, a scalar, and its metrics.

        logp: [B,T] nats, with gradient; old_logp: [B,T] nats, of the policy that drew the responses; entropy: [B,T]
        nats, read when `entropy_coef` is not 0. The batch's column "advantage" is read, and "ref_logp" if the KL is in
        the loss.
        """
        column, mask = batch.columns, self.trained(batch)
        surrogate, clipped = self.surrogate(logp, old_logp, column["advantage"], mask)
        loss = self.total(surrogate, batch)
        metrics: Numbers = {
            "policy_loss": ops.mean_metric(surrogate, mask),
            "clip_fraction": ops.mean_metric(clipped.float(), mask),
        }
        if self.kl != "full" and self.kl_coef and self.kl_in == "loss":
            kl = ops.kl(logp, column["ref_logp"], self.kl, mask)
            loss = loss + self.current_kl_coef() * self.total(kl, batch)
            metrics["kl_loss"] = ops.mean_metric(kl, mask)
        if self.entropy_coef:
            assert entropy is not None
            loss = loss - self.entropy_coef * self.total(entropy, batch)
        with torch.no_grad():
            log_ratio = torch.where(mask, logp - old_logp, 0.0)
            metrics["approx_kl"] = ops.mean_metric(log_ratio.square() / 2, mask)
            metrics["max_log_ratio"] = Most(log_ratio.abs().max())
        return loss, metrics

    def surrogate(self, logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's loss per token, and a mask of clipped tokens (bool), each [B,T]. A variant changes it."""
        return ops.clip_loss(logp, old_logp, advantage, mask, self.clip, self.clip_high)

    def total(self, per_token: Tensor, batch: Batch) -> Tensor:
        """Return the share of `batch` in the optimizer step's average of a value per token [B,T], a scalar."""
        return ops.aggregate(per_token, self.trained(batch), self.aggregate, **batch.totals())

    def trained(self, batch: Batch) -> Tensor:
        """Return a mask, bool [B,T], of the tokens of `batch` in the loss: the drawn tokens, restricted to
        `Advantages.trained`.
        """
        chosen = batch.columns.get("trained")
        return batch.drawn if chosen is None else batch.drawn & chosen

    def score(self, model: Any, batch: Batch) -> Any:
        """Return log-probabilities of the responses under the policy at the temperature of sampling, and entropies if
        they are used.
        """
        return model.actor.score(batch, temperature=batch.temperature, entropy=self.entropy_coef > 0)

    def distance(
        self, model: Any, batch: Batch, prompts: Tensor, *, of: Literal["student", "teacher"] = "student", adapter: bool = True
    ) -> Tensor:  # fmt: skip
        """Return the KL over the whole vocabulary between the policy and a teacher that reads other prompts, nats
        [B,T], with the policy's gradient; 0 for tokens that it did not draw. It is computed for a few tokens at a time:
        there is no tensor [B,T,V].

        The teacher is the present policy, without gradient and dropout. prompts: the teacher's ids, long [B,W], -1
        before the beginning of each (`per_row(fill=-1, side="left")`). of: KL(policy || teacher), or KL(teacher ||
        policy). adapter: False for a teacher without the adapter, which is the policy before training.
        """
        actor, real = model.actor, prompts >= 0
        response = (batch.response_ids, batch.mask, batch.eos)
        told = rollouts.trim(Tokens(prompts.masked_fill(~real, actor.pad_id), real, *response, no_end=batch.no_end))
        with torch.no_grad(), models.evaluating(actor):
            others = actor.states(told, adapter=adapter, gradient=True)
        student = actor.states(batch), actor.logits
        # the output layer has a gradient of its own, and the teacher reads it, too
        teacher = others, lambda states: actor.logits(states).detach()
        first, second = (student, teacher) if of == "student" else (teacher, student)
        kl = models.chunked_kl(*first, *second, temperature=batch.temperature, barred=actor.barred(batch))
        distance: Tensor = torch.where(batch.drawn, models.unflatten(kl, batch.mask), 0.0)
        return distance
