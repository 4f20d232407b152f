"""Actor and critic as one module: DeepSpeed and Lightning's automatic optimization support only one optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from fgrl.models.language_model import LanguageModel


class ActorCritic(nn.Module):
    """Policy, with a critic (a separate network with a scalar head) for algorithms that learn values, and `auxiliary`
    models by name that are trained in addition for a reward or an algorithm.
    """

    def __init__(
        self,
        actor: LanguageModel,
        critic: LanguageModel | None = None,
        auxiliary: Mapping[str, LanguageModel] | None = None,
    ) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.auxiliary = nn.ModuleDict(auxiliary)

    def parameter_groups(
        self,
        actor_lr: float,
        critic_lr: float | None = None,
        weight_decay: float = 0.0,
        auxiliary_lr: Mapping[str, float | None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return groups for an optimizer, named "actor", "critic" and after the auxiliary models: one each, or two with
        weight decay.

        Vectors (norms, biases) are never decayed: with `weight_decay` each group has a second one, "actor_no_decay" and
        "critic_no_decay". auxiliary_lr: peak learning rates by name, if they differ from the actor's.
        """
        groups = _groups("actor", self.actor, actor_lr, weight_decay)
        if self.critic is not None:
            if critic_lr is None:
                raise ValueError("the critic needs a learning rate")
            groups += _groups("critic", self.critic, critic_lr, weight_decay)
        for name, model in self.auxiliary.items():
            groups += _groups(name, model, (auxiliary_lr or {}).get(name) or actor_lr, weight_decay)
        return groups


def _groups(name: str, model: nn.Module, lr: float, weight_decay: float) -> list[dict[str, Any]]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(f"nothing to train in the {name}: load it with trainable=True")
    if not weight_decay:
        return [{"name": name, "params": trained, "lr": lr, "weight_decay": 0.0}]
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    vectors = [parameter for parameter in trained if parameter.ndim <= 1]
    groups = [
        {"name": name, "params": matrices, "lr": lr, "weight_decay": weight_decay},
        {"name": f"{name}_no_decay", "params": vectors, "lr": lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
