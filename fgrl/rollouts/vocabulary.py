"""Models that read each other's token ids need the same vocabulary."""

from __future__ import annotations

from typing import Any

from fgrl.errors import DataError


def check(model: Any, **others: Any) -> None:
    """Raise `DataError` when the tokenizer of one of `others` (None: it reads text) differs from the model's."""
    own = model.tokenizer.get_vocab()
    for name, tokenizer in others.items():
        if tokenizer is not None and tokenizer.get_vocab() != own:
            raise DataError(
                f"{name.replace('_', ' ')} was trained with another tokenizer than {model.spec.base}, so it would misread "
                "every token id; train it on the same base model"
            )
