"""Language models as this library sees them: a backbone, a head, adapters, and one pass in chunks over the vocabulary.

    model = load(ModelSpec(base="smollm2-135m-instruct", lora=LoraSpec()), trainable=True)
    scores = model.score(tokens, entropy=True)      # log-probabilities and entropies [B,T], no [B,T,V] tensor
    with model.adapter_off(): ...                   # the frozen reference of a LoRA policy
    save(model, folder, about={"stage": "policy"})

`sources` and `fingerprint` need no torch; everything else is imported when it is first touched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fgrl.models.actor_critic import ActorCritic
    from fgrl.models.chunked import chunked_kl, chunked_scores
    from fgrl.models.language_model import LanguageModel, Scores, evaluating, full_kl, unflatten
    from fgrl.models.loading import load
    from fgrl.models.saving import save
    from fgrl.models.shared_prompts import arrange
    from fgrl.models.sources import fingerprint, packaged

__all__ = [
    "ActorCritic",
    "LanguageModel",
    "Scores",
    "arrange",
    "chunked_kl",
    "chunked_scores",
    "evaluating",
    "fingerprint",
    "full_kl",
    "load",
    "packaged",
    "save",
    "unflatten",
]

_FILES = {
    "actor_critic": ("ActorCritic",),
    "chunked": ("chunked_kl", "chunked_scores"),
    "language_model": ("LanguageModel", "Scores", "evaluating", "full_kl", "unflatten"),
    "loading": ("load",),
    "saving": ("save",),
    "shared_prompts": ("arrange",),
    "sources": ("fingerprint", "packaged"),
}


def __getattr__(name: str) -> Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(importlib.import_module(f"fgrl.models.{file}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
