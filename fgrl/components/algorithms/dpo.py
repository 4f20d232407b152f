"""Direct alignment on preference pairs: DPO (Rafailov et al. 2023), DPO-Positive (Pal et al. 2024), IPO (Azar et al.
2024), APO-zero and APO-down (D'Oosterlinck et al. 2025), each with an optional term of supervised fine-tuning.

Not supported: divergences other than the reverse KL, losses without a reference, and a reference that follows the
policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers, Run
from fgrl.registry import Unkeyed, register
from fgrl.training.references import ReferencedAlgorithm
from fgrl.types import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.types import Tokens
torch = lazy.load("torch")
reference_sums = lazy.load("fgrl.rollouts.reference_sums")


@register("dpo")
class DPO(ReferencedAlgorithm):
    """Loss of the log-ratios w (chosen) and l (rejected), log p(response) - log p_reference(response), summed over the
    response's tokens: -log sigmoid(beta * (w - l)) or another `objective`.

    Policy and reference compute each pair with the same matrix products. If both have the same weights, every log-ratio
    is therefore exactly 0, also in bfloat16. The common part of the two answers of a pair (the prompt and an equal
    beginning) is computed once.
    """

    version = 2
    data = "pairs"

    objective: ops.Objective = "dpo"
    """`dpo`: -log sigmoid(beta (w - l)). `ipo`: (w - l - 1 / (2 beta))^2. `apo_zero`: 1 - sigmoid(beta w) +
    sigmoid(beta l), raises the chosen answer and lowers the rejected one. `apo_down`: sigmoid(beta w) + 1 -
    sigmoid(beta (w - l)), lowers both, the rejected one more.
    """
    beta: float = Field(0.1, gt=0, le=100)
    """Strength of the constraint to stay near the reference (tau in the paper of IPO)."""
    dpop_lambda: float = Field(0.0, ge=0, le=1e6)
    """Coefficient of the penalty of DPO-Positive (objective `dpo`): subtract dpop_lambda * max(0, -w) from w - l,
    inside the sigmoid, so that the chosen answer does not become less probable than under the reference. 0 is plain
    DPO. The paper (Pal et al. 2024) reports similar results from 5 to 500 and uses 50; large values make steep
    gradients, so lower the learning rate or start with 5.
    """
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Assumed share of pairs with swapped preference (conservative DPO; objective `dpo` without a penalty)."""
    length_normalized: bool = False
    """Average log-ratios over the tokens of each response instead of summing them, so that beta has the same meaning at
    any length. The authors of IPO and trl's `ipo` do so. Log-ratios are then smaller by a factor of the length, so beta
    is set higher.
    """
    sft_coef: float = Field(0.0, ge=0, le=1e6)
    """Weight of an additional term of supervised fine-tuning: -log p of the chosen response, averaged over its tokens
    and then over pairs.
    """
    reference_pass: Annotated[Literal["once", "each_step"], Unkeyed] = "once"
    """`once`: the reference reads every pair before the first step, and the log-probabilities are stored for all
    epochs, for a resumed training and for other trainings on the same pairs; a separate reference model is then removed
    from memory. Pairs go through the model one at a time, so that rounding does not depend on the micro-batch.
    `each_step`: the reference reads each micro-batch together with the policy. With `fsdp` and `deepspeed_stage_3` this
    is always so.
    """

    _sums: Any = PrivateAttr(None)

    @model_validator(mode="after")
    def _defined(self) -> DPO:
        for name, value in (("label_smoothing", self.label_smoothing), ("dpop_lambda", self.dpop_lambda)):
            if value and self.objective != "dpo":
                raise ValueError(
                    f"{name} {value:g} is defined for the objective dpo only, not for {self.objective}: leave it out, or set "
                    "objective: dpo"
                )
        if self.label_smoothing and self.dpop_lambda:
            raise ValueError(
                f"label_smoothing {self.label_smoothing:g} and dpop_lambda {self.dpop_lambda:g}: no paper defines the two together; "
                "leave one of them out"
            )
        return self

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        super().prepare(rows, run, model)
        self._sums = reference_sums.ReferenceSums()

    def loads_at_once(self) -> bool:
        return self.reference_pass == "each_step"

    def begin(self, model: Any, units: Sequence[Batch], run: Run, rank: int = 0, world: int = 1) -> None:
        """Compute the reference's log-probabilities of all pairs with `reference_pass: once`, and free its memory
        afterwards.
        """
        if not self._once(model):
            return
        assert self._start is not None, "prepare(rows, run, model) comes first"
        spec = self.reference or self._start.frozen()
        file = reference_sums.file_for(units, spec, run, self._conditions(model))
        self._sums.fill(
            units, lambda unit: self._sum_reference(model, unit), self._conditions(model), file, run, rank, world
        )
        self._frozen = None
        run.forget_models()

    def unit_by_unit(self) -> bool:
        return self.reference_pass == "once"

    def _once(self, model: Any) -> bool:
        return self.reference_pass == "once" and not model.sharded

    def _conditions(self, policy: Any) -> str:
        """Return the conditions, apart from weights and tokens, that affect the rounding of the reference's pass."""
        kind = policy.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        spec = policy.spec
        processor = torch.cuda.get_device_name(policy.device) if kind == "cuda" else kind
        versions = f"{torch.__version__} {metadata.version('transformers')}"
        return (
            f"{policy.transformer.dtype} {autocast} {processor} {torch.get_num_threads()} {versions} "
            f"{spec.attention_here()} {spec.gradient_checkpointing} {self.is_below(policy)}"
        )

    def _sum_reference(self, policy: Any, batch: Tokens) -> Tensor:
        return _summed(self.reference_logp(policy, batch), batch)

    def _log_probabilities(self, model: Any, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield log-probabilities of whole responses under policy and reference, each float64 [b], for one forward pass
        after another.
        """
        once = self._once(model)
        for part in reference_sums.units_of(batch, 2) if once else [batch]:
            compute = lambda part=part: self._sum_reference(model, part)  # noqa: E731
            reference = self._sums.of(part, compute, self._conditions(model)) if once else compute()
            yield _summed(model.score(part, gradient=True, pairs=True).logp, part), reference

    def token_credit(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        """Return beta log(p / p_reference) of each token, whose sums over two responses differ by the `margin`."""
        lengths = batch.drawn.sum(dim=1, keepdim=True).clamp(min=1) if self.length_normalized else 1
        return {"implicit_reward": self.beta * self.log_ratio(model, batch) / lengths}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the loss of rows 2i (chosen) and 2i+1 (rejected): the mean over all pairs of the optimizer step.

        The metrics `logp_chosen` and `logp_rejected` are in nats per response under the policy; `margin` is beta (w -
        l).
        """
        policy, reference = (torch.cat(parts) for parts in zip(*self._log_probabilities(model, batch), strict=True))
        lengths = batch.drawn.sum(dim=1).clamp(min=1)
        log_ratio = ((policy - reference) / (lengths if self.length_normalized else 1)).float()
        chosen, rejected = log_ratio[0::2], log_ratio[1::2]
        losses = ops.preference_loss(
            chosen,
            rejected,
            self.objective,
            self.beta,
            label_smoothing=self.label_smoothing,
            dpop_lambda=self.dpop_lambda,
        )
        nll = -(policy / lengths)[0::2].float()
        if self.sft_coef:
            losses = losses + self.sft_coef * nll
        loss = losses.sum() / (batch.total_rows / 2) * batch.scale
        with torch.no_grad():
            metrics: Numbers = {
                "loss": float(losses.mean()),
                "accuracy": float((chosen > rejected).float().mean()),
                "margin": float(self.beta * (chosen - rejected).mean()),
                "log_ratio_chosen": float(chosen.mean()),
                "log_ratio_rejected": float(rejected.mean()),
                "logp_chosen": float(policy[0::2].mean()),
                "logp_rejected": float(policy[1::2].mean()),
                "nll_chosen": float(nll.mean()),
            }
        return loss, metrics


def _summed(logp: Tensor, batch: Tokens) -> Tensor:
    """Return the log-probabilities of whole responses in nats, float64 [B]."""
    return ops.masked_sum(logp.double(), batch.drawn, dim=1)
