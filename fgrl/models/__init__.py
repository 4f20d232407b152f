"""Language models: a backbone, a head, adapters, and log-probabilities and entropies in chunks over the vocabulary.

    model = load(ModelSpec(base="smollm2-135m-instruct", lora=LoraSpec()), trainable=True)
    scores = model.score(tokens, entropy=True)      # log-probabilities and entropies [B,T], no [B,T,V] tensor
    with model.adapter_off(): ...                   # the frozen reference of a LoRA policy
    save(model, folder, about={"stage": "policy"})

`fingerprint` and `packaged` need no torch. All names are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    from fgrl.models.actor_critic import ActorCritic
    from fgrl.models.chunked import chunked_kl, chunked_scores
    from fgrl.models.language_model import LanguageModel, Scores, evaluating, gathering, unflatten
    from fgrl.models.loading import load
    from fgrl.models.saving import copy, save
    from fgrl.models.shared_prompts import arrange
    from fgrl.models.sources import fingerprint, locate
    from fgrl.models.vocabulary import Vocabulary, read_vocabulary
    from fgrl.models.wheels import packaged

__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "actor_critic": ["ActorCritic"],
        "chunked": ["chunked_kl", "chunked_scores"],
        "language_model": ["LanguageModel", "Scores", "evaluating", "gathering", "unflatten"],
        "loading": ["load"],
        "saving": ["copy", "save"],
        "shared_prompts": ["arrange"],
        "sources": ["fingerprint", "locate"],
        "vocabulary": ["Vocabulary", "read_vocabulary"],
        "wheels": ["packaged"],
    },
)
