"""Embeddings of the tokens of a text by an encoder, for metrics that match tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

from fgrl.base.errors import DataError
from fgrl.kinds.specs import ModelSpec
from fgrl.models.pretrained import pretrained_model, tokenizer_of
from fgrl.models.sources import Resolve, locate


@dataclass(frozen=True)
class EmbeddedText:
    """Text as tokens of an encoder, including special tokens."""

    ids: list[int]
    """[T] token ids."""
    special: list[bool]
    """[T] True for tokens that the tokenizer adds: the beginning, the end, separators."""
    vectors: Tensor
    """float32 [T,D], rows of length 1, on the CPU."""
    cut: bool
    """True if the text was longer than the encoder's limit, and lost its end."""


class TokenEncoder:
    """Encoder from texts to hidden states of one of its layers.

    spec: a transformers model: hub id or folder. layer: number of the layer: 0 is the embedding layer, 1 the first
    layer's output, ... Raises `DataError` if the model has fewer. device: device of the model. resolve: function from
    `${out:stage}` to a folder.
    """

    def __init__(
        self, spec: ModelSpec, layer: int, *, device: Any = "cpu", batch_size: int = 32, resolve: Resolve | None = None
    ) -> None:
        source = locate(spec, resolve)
        options = {"dtype": getattr(torch, spec.dtype or "float32"), "attn_implementation": spec.attention_here()}
        net = pretrained_model(transformers.AutoModel, source.name, revision=source.revision, **options)
        self.net = net.to(device).eval()
        self.tokenizer = tokenizer_of(source.name, source.revision)
        layers = self.net.config.num_hidden_layers
        if layer > layers:
            raise DataError(
                f"{source.name} has {layers} layers, and layer {layer} is asked for: name one of 0 to {layers}"
            )
        self.layer, self.device, self.batch_size = layer, device, batch_size
        self.max_tokens = longest(self.tokenizer, self.net.config)

    def encode(self, text: str) -> tuple[list[int], list[bool], bool]:
        """Return (ids, mask of special ids, whether it was cut) of a text. As in bert-score, a byte-level tokenizer
        reads the first word as if a space came before it, like every other word.
        """
        text = text.strip()
        if text and getattr(self.tokenizer, "add_prefix_space", None) is False:
            text = f" {text}"
        whole = self.tokenizer(text, add_special_tokens=True, return_special_tokens_mask=True)
        ids, special = list(whole.input_ids), [bool(mark) for mark in whole.special_tokens_mask]
        if self.max_tokens is None or len(ids) <= self.max_tokens:
            return ids, special, False
        options = {"truncation": True, "max_length": self.max_tokens, "return_special_tokens_mask": True}
        short = self.tokenizer(text, add_special_tokens=True, **options)
        return list(short.input_ids), [bool(mark) for mark in short.special_tokens_mask], True

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> Iterator[EmbeddedText]:
        """Yield each text, in batches of neighbours; sort many texts by length first."""
        pad = self.tokenizer.pad_token_id or 0
        for start in range(0, len(texts), self.batch_size):
            encoded = [self.encode(text) for text in texts[start : start + self.batch_size]]
            width = max(len(ids) for ids, _special, _cut in encoded)
            ids = torch.tensor(
                [own + [pad] * (width - len(own)) for own, _special, _cut in encoded], device=self.device
            )
            mask = torch.tensor(
                [[1] * len(own) + [0] * (width - len(own)) for own, _special, _cut in encoded], device=self.device
            )
            states = self.net(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[self.layer]
            for row, (own, special, cut) in zip(states.float().cpu(), encoded, strict=True):
                yield EmbeddedText(own, special, torch.nn.functional.normalize(row[: len(own)], dim=-1), cut)


def longest(tokenizer: Any, config: Any) -> int | None:
    """Return the maximum number of tokens of an encoder's input; None if there is no limit. Tokenizers write a huge
    number for no limit; RoBERTa's positions begin after its padding id.
    """
    limits = [getattr(tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    if config.model_type in ("roberta", "xlm-roberta", "camembert") and limits[1] is not None:
        limits[1] -= config.pad_token_id + 1
    known = [limit for limit in limits if limit is not None and limit < 10**9]
    return min(known, default=None)
