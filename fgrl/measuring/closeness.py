"""Cosine similarity of a text and its references, for the annotator and the metric that use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator

from fgrl.base import lazy
from fgrl.base.errors import Requires
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Settings, Unkeyed

sentences = lazy.load("fgrl.models.embeddings")

EMPTY = -1.0
"""Cosine of an empty answer: the lowest possible value."""


class Closeness(Settings):
    """Settings of components that compare texts by a sentence encoder."""

    requires = Requires("sentence_transformers", "a sentence encoder needs sentence-transformers", extra="metrics")

    encoder: ModelSpec = ModelSpec(base="all-minilm-l6-v2")
    """Sentence-transformers model: `all-minilm-l6-v2` (packaged), a hub id or a folder."""
    batch_size: Annotated[int, Unkeyed] = Field(64, ge=1)
    """Number of texts embedded at the same time."""

    _encoder: Any = PrivateAttr(None)
    _run: Any = PrivateAttr(None)

    @field_validator("encoder")
    @classmethod
    def _plain(cls, spec: ModelSpec) -> ModelSpec:
        if spec.head or spec.lora or spec.quantize:
            raise ValueError("a sentence encoder has no head, adapter or quantization: give its name alone")
        return spec

    def setup(self, run: Any) -> None:
        self.check_machine()
        self._run = run
        self._encoder = sentences.SentenceEncoder(
            self.encoder, run.cache, device=run.device, batch_size=self.batch_size, resolve=run.path
        )

    def cosines(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Return the highest cosine of each text with one of its references (RLA, Eq. 2); -1 for an empty text.

        Raises ValueError for a text without references.
        """
        if not all(references):
            raise ValueError("a text has no references")
        wanted = list(
            dict.fromkeys(
                text
                for text in [*texts, *(reference for several in references for reference in several)]
                if text.strip()
            )
        )
        with self._run.progress("texts embedded", len(wanted)) as ticker:
            vectors = dict(zip(wanted, self._encoder.embed(wanted, ticker.advance), strict=True))
        return [
            max(float(vectors[text] @ vectors[reference]) for reference in several) if text.strip() else EMPTY
            for text, several in zip(texts, references, strict=True)
        ]
