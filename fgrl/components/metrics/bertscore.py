"""Similarity in meaning between the tokens of an answer and of a reference (Zhang et al. 2019)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from fgrl.base import lazy
from fgrl.kinds import Meaning
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured
from fgrl.registry import Unkeyed, register

embeddings = lazy.load("fgrl.models.token_embeddings")
torch = lazy.load("torch")

NAMES = ("precision", "recall", "f1")


@register("bertscore")
class BertScore(Referenced):
    """BERTScore: `precision`, `recall` and `f1` of the tokens of answer and reference, each matched with the most
    similar token of the other text by the cosine of their contextual embeddings; the best reference for each of the
    three. 0 to 1 in practice, and before rescaling rarely below 0.8. `cut`: share of answers that the encoder could not
    read whole.

    Computed as the package bert-score does, by code of our own on transformers: special tokens have no weight, but may
    be matched; an empty answer scores 0. Numbers of different encoders and layers cannot be compared, so state both
    with the result.
    """

    meanings = {
        "f1": Meaning("similarity to the reference (BERTScore F1)", "higher"),
        "precision": Meaning("precision against the reference (BERTScore)", "higher"),
        "recall": Meaning("recall of the reference (BERTScore)", "higher"),
        "cut": Meaning("share of answers that the encoder could not read whole"),
    }

    encoder: ModelSpec = ModelSpec(base="roberta-large")
    """Encoder of transformers: a hub id or a folder."""
    layer: int = Field(17, ge=0)
    """Number of layers after which the hidden states are taken. bert-score uses 17 for roberta-large, 10 for
    roberta-base, 9 for bert-base-uncased, 18 for bert-large-uncased.
    """
    idf: bool = False
    """Weight tokens by their inverse document frequency among the references: rare words count more."""
    rescale: list[float] | None = None
    """Baseline precision, recall and F1 of unrelated texts. They are rescaled to 0, while 1 stays 1. For roberta-large,
    bert-score's `rescale_baseline/en/roberta-large.tsv` lists them by layer. null: no rescaling.
    """
    batch_size: Annotated[int, Unkeyed] = Field(32, ge=1)
    """Number of texts that are embedded at the same time."""

    _encoder: Any = PrivateAttr(None)

    @field_validator("encoder")
    @classmethod
    def _plain(cls, spec: ModelSpec) -> ModelSpec:
        if spec.head or spec.lora or spec.quantize:
            raise ValueError("an encoder has no head, adapter or quantization: give its name alone")
        return spec

    @model_validator(mode="after")
    def _baseline(self) -> BertScore:
        if self.rescale is not None and (
            len(self.rescale) != len(NAMES) or not all(value < 1 for value in self.rescale)
        ):
            raise ValueError("rescale: wants three numbers below 1: precision, recall and F1 of unrelated texts")
        return self

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        weights = "idf" if self.idf else "no idf"
        rescaled = "" if self.rescale is None else f", rescaled by {self.rescale}"
        return f"BERTScore of {self.encoder.base}, layer {self.layer}, {weights}{rescaled}; own implementation"

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        references = [self.usable(answer.references) for answer in answers]
        texts = dict.fromkeys([*(answer.text for answer in answers), *(text for own in references for text in own)])
        embedded = self._embedded(list(texts))
        of_prompts = {answer.id: own for answer, own in zip(answers, references, strict=True)}
        weight = (
            InverseFrequencies([embedded[text].ids for own in of_prompts.values() for text in own])
            if self.idf
            else None
        )
        best = [
            [
                max(own)
                for own in zip(
                    *(self._scores(embedded[answer.text], embedded[text], weight) for text in of), strict=True
                )
            ]
            for answer, of in zip(answers, references, strict=True)
        ]
        numbers = {name: mean(answers, [own[place] for own in best]) for place, name in enumerate(NAMES)}
        return numbers | {"cut": mean(answers, [float(embedded[answer.text].cut) for answer in answers])}

    def _embedded(self, texts: list[str]) -> dict[str, Any]:
        if self._encoder is None:
            self._encoder = embeddings.TokenEncoder(
                self.encoder, self.layer, device=self._run.device, batch_size=self.batch_size, resolve=self._run.path
            )
        ordered = sorted(texts, key=len)
        known: dict[str, Any] = {}
        with self._run.progress("texts embedded", len(ordered)) as ticker:
            for text, embedded in zip(ordered, self._encoder.embed(ordered), strict=True):
                known[text] = embedded
                ticker.advance()
        return known

    def _scores(self, answer: Any, reference: Any, weight: Mapping[int, float] | None) -> tuple[float, ...]:
        """Return precision, recall and F1 of one answer against one reference."""
        scores = greedy_matching(answer, reference, weight)
        if self.rescale is None:
            return scores
        return tuple((score - base) / (1 - base) for score, base in zip(scores, self.rescale, strict=True))


def greedy_matching(answer: Any, reference: Any, weight: Mapping[int, float] | None) -> tuple[float, float, float]:
    """Return precision, recall and F1 of two `EmbeddedText`s: the weighted means of each token's highest cosine with a
    token of the other text. weight: weight of each token id; None: equal weights. The result is 0 if one of the texts
    has no token with a weight.
    """
    similar = answer.vectors @ reference.vectors.T
    precision = _weighted(similar.max(dim=1).values, answer, weight)
    recall = _weighted(similar.max(dim=0).values, reference, weight)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _weighted(values: Any, text: Any, weight: Mapping[int, float] | None) -> float:
    weights = torch.tensor(
        [
            0.0 if mark else 1.0 if weight is None else weight[token]
            for token, mark in zip(text.ids, text.special, strict=True)
        ]
    )
    total = float(weights.sum())
    return float((values * weights).sum()) / total if total else 0.0


class InverseFrequencies(dict[int, float]):
    """Inverse document frequencies: log((N + 1) / (n + 1)) for a token id that n of N documents contain, and log(N + 1)
    for a token id that no document contains.
    """

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        counts = Counter(token for document in documents for token in set(document))
        super().__init__({token: math.log((len(documents) + 1) / (n + 1)) for token, n in counts.items()})
        self.unseen = math.log(len(documents) + 1)

    def __missing__(self, token: int) -> float:
        return self.unseen
