"""Language models as this library sees them: a backbone, a head, adapters, and one pass in chunks over the vocabulary.

    model = load(ModelSpec(base="smollm2-135m-instruct", lora=LoraSpec()), trainable=True)
    scores = model.score(tokens, entropy=True)      # log-probabilities and entropies [B,T], no [B,T,V] tensor
    with model.adapter_off(): ...                   # the frozen reference of a LoRA policy
    save(model, folder, about={"stage": "policy"})

`sources` and `fingerprint` need no torch; everything else is imported when it is first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from fgrl.models.actor_critic import ActorCritic
    from fgrl.models.chunked import chunked_kl, chunked_scores
    from fgrl.models.language_model import LanguageModel, Scores, full_kl, unflatten
    from fgrl.models.loading import load
    from fgrl.models.saving import save
    from fgrl.models.sources import fingerprint, packaged

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["heads"],
    submod_attrs={
        "actor_critic": ["ActorCritic"],
        "chunked": ["chunked_kl", "chunked_scores"],
        "language_model": ["LanguageModel", "Scores", "full_kl", "unflatten"],
        "loading": ["load"],
        "saving": ["save"],
        "sources": ["fingerprint", "packaged"],
    },
)
