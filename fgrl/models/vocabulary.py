"""Parts of a model that are needed for its texts, without its weights: the tokenizer and the tokens that end an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers

from fgrl.base.errors import DataError, Unavailable
from fgrl.kinds.specs import ModelSpec
from fgrl.models.loading import end_of_answer, end_tokens
from fgrl.models.pretrained import pretrained, tokenizer_of
from fgrl.models.sources import Resolve, Source, locate


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary with the same attributes as a `LanguageModel`."""

    spec: ModelSpec
    tokenizer: Any
    eos_ids: set[int]
    end_id: int

    @property
    def pad_id(self) -> int:
        padding = self.tokenizer.pad_token_id
        return self.end_id if padding is None else int(padding)


def read_vocabulary(spec: ModelSpec, resolve: Resolve | None = None) -> Vocabulary:
    """Return the vocabulary of the model that `load` would load. Raises `DataError` or `Unavailable` as `load` does."""
    source = locate(spec, resolve)
    saved = source.saved_model()
    tokenizer = tokenizer_of(source.name, source.revision, spec.templating)
    eos_ids = set(saved["eos_ids"]) if saved else end_tokens(tokenizer, _generation(source))
    return Vocabulary(spec, tokenizer, eos_ids, end_of_answer(tokenizer, eos_ids))


def _generation(source: Source) -> Any:
    """Return the model's generation settings. If there is no file of them, they come from its configuration, as in
    transformers.
    """
    try:
        return pretrained(transformers.GenerationConfig, source.name, revision=source.revision)
    except (DataError, Unavailable):
        return pretrained(transformers.AutoConfig, source.name, revision=source.revision).get_text_config()
