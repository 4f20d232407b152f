"""Frozen reference of offline algorithms: the policy without its adapter, or a separate model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from fgrl.base import lazy
from fgrl.kinds import OfflineAlgorithm, Run
from fgrl.kinds.specs import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.types import Tokens
torch = lazy.load("torch")
models = lazy.load("fgrl.models")


@dataclass
class Compared:
    """Responses under a policy and its reference, nats [B,T], 0 outside the mask."""

    logp: Tensor
    """Log-probabilities under the policy, with its gradient."""
    ref_logp: Tensor
    """Log-probabilities under the reference."""
    kl: Tensor
    """KL(reference || policy) of the distribution of each token, with the policy's gradient."""


class ReferencedAlgorithm(OfflineAlgorithm):
    """Base class of algorithms that compare the policy with a frozen reference, such as `dpo`."""

    reference: ModelSpec | None = None
    """Reference model, with its own `dtype`. null: the model that training starts from; with an adapter, the model
    without it.
    """

    _run: Run | None = PrivateAttr(None)
    _start: ModelSpec | None = PrivateAttr(None)
    _frozen: Any = PrivateAttr(None)
    _dtype: Any = PrivateAttr(None)

    def prepare(self, rows: Sequence[Mapping[str, Any]], run: Run, model: Any) -> None:
        """Load the reference, unless it is the policy without its adapter."""
        self._run, self._start, self._frozen = run, model.spec, None
        if self.loads_at_once() and not self.is_below(model):
            self._separate(model)

    def loads_at_once(self) -> bool:
        """Return True if the reference is used in every step, and is loaded before the first."""
        return True

    def frozen_models(self, model: ModelSpec) -> dict[str, ModelSpec]:
        return {} if self.reference is None and model.lora else {"reference": self.reference or model.frozen()}

    def is_below(self, policy: Any) -> bool:
        """Return True if the reference is the policy with its adapter switched off."""
        return self.reference is None and bool(policy.adapted)

    def _separate(self, policy: Any) -> Any:
        """Return a frozen model in addition to the policy. The model that training starts from is loaded in the
        policy's present type.

        `policy` may differ from it: the best model of a training is measured under its own specification.
        """
        assert self._run is not None, "prepare(rows, run, model) comes first"
        assert self._start is not None
        own, dtype = self.reference is None, policy.transformer.dtype
        if self._frozen is None or (own and self._dtype != dtype):
            changes = {"lora": None, "gradient_checkpointing": policy.spec.gradient_checkpointing}
            spec = (self.reference or self._start).model_copy(update=changes)
            frozen = self._run.model(spec, trainable=own).requires_grad_(False)  # loaded as where training starts
            if own and frozen.transformer.dtype != dtype:
                for parameter in frozen.parameters():  # no buffers, as a strategy does that converts the policy
                    parameter.data = parameter.data.to(dtype)
            self._frozen, self._dtype, frozen.sharded = frozen, dtype, policy.sharded
        if self._frozen.packed_tokens is None:
            self._frozen.pack_rows(policy.packed_tokens)
        return self._frozen

    def reference_logp(self, policy: Any, batch: Tokens) -> Tensor:
        """Return log-probabilities of the response tokens under the reference, nats [B,T], without gradient and
        dropout.

        `policy.score(batch, gradient=True, pairs=True)` computes the same matrix products, so that equal weights give
        equal rounding.
        """
        below = self.is_below(policy)
        reference = policy if below else self._separate(policy)
        with torch.no_grad(), models.evaluating(reference), policy.low_precision():
            logp: Tensor = reference.score(batch, adapter=not below, gradient=True, pairs=True).logp
        return logp

    def log_ratio(self, policy: Any, batch: Tokens) -> Tensor:
        """Return log(policy / reference) of the response tokens, nats [B,T], with the policy's gradient."""
        logp: Tensor = policy.score(batch, gradient=True, pairs=True).logp
        return logp - self.reference_logp(policy, batch)

    def compared(self, policy: Any, batch: Tokens) -> Compared:
        """Return log-probabilities under policy and reference, and the KL of whole distributions, which are computed
        for a few tokens at a time: there is no tensor [B,T,V].
        """
        below = self.is_below(policy)
        reference = policy if below else self._separate(policy)
        with torch.no_grad(), models.evaluating(reference), policy.low_precision():
            others = reference.states(batch, adapter=not below, gradient=True)
            ref_logp = reference.score_states(others, batch).logp
        states = policy.states(batch, gradient=True)
        kl = models.chunked_kl(others, reference.logits, states, policy.logits)
        return Compared(policy.score_states(states, batch).logp, ref_logp, models.unflatten(kl, batch.mask))
