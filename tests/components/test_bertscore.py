"""BERTScore on a tiny random encoder: numpy as the oracle, and the package bert-score where it is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from answer_helpers import answer_of

from fgrl.base.console import Console
from fgrl.base.errors import DataError
from fgrl.components.metrics.bertscore import BertScore, InverseFrequencies
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.registry import Problems, build

WORDS = [
    "the",
    "a",
    "lamp",
    "lit",
    "old",
    "new",
    "door",
    "stands",
    "by",
    "it",
    "is",
    "not",
    "at",
    "night",
    "day",
    ".",
    ",",
]
PAIRS = [
    ("the old lamp is lit", ["the lamp stands by the door", "a new lamp"]),
    ("it is day .", ["it is not night ."]),
    ("the the the", ["a door , a lamp , the night"]),
    ("zebra lamp", ["lamp"]),  # an unknown word
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A three-layer random BERT that reads 12 tokens, with [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=12,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        max_position_embeddings=12, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(config)
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def states(folder: Path, text: str, layer: int) -> tuple[list[int], np.ndarray]:
    """Ids with special tokens, and unit vectors, of one text by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states[layer][0].numpy()
    return encoded.input_ids[0].tolist(), hidden / np.linalg.norm(hidden, axis=1, keepdims=True)


def oracle(folder: Path, candidate: str, reference: str, layer: int, weights: dict[int, float] | None) -> list[float]:
    """Section 3 of the paper, one token after the other."""
    (ids, x), (other_ids, y) = states(folder, candidate, layer), states(folder, reference, layer)

    def side(own: list[int], vectors: np.ndarray, others: np.ndarray) -> float:
        total = weight_of_all = 0.0
        for token, vector in zip(own[1:-1], vectors[1:-1], strict=True):
            weight = 1.0 if weights is None else weights[token]
            total += weight * max(float(vector @ other) for other in others)
            weight_of_all += weight
        return total / weight_of_all

    precision, recall = side(ids, x, y), side(other_ids, y, x)
    return [precision, recall, 2 * precision * recall / (precision + recall)]


def measured(folder: Path, tmp_path: Path, pairs: Sequence[tuple[str, list[str]]], **settings: Any) -> dict[str, Any]:
    metric = build("metric", {"name": "bertscore", "encoder": str(folder), "layer": 2} | settings)
    answers = [answer_of(str(n), f"q{n}", text, references=own) for n, (text, own) in enumerate(pairs)]
    with scratch_run("evaluate", cache=tmp_path, seed=0, accelerator="cpu", products={}, console=Console()) as run:
        metric.setup(run)
        found: dict[str, Any] = metric.measure({"m": answers})["bertscore"]
    return found


@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize("layer", [0, 2, 3])
def test_numpy_gives_the_same(encoder: Path, tmp_path: Path, idf: bool, layer: int) -> None:
    found = measured(encoder, tmp_path, PAIRS, idf=idf, layer=layer)
    documents = [set(states(encoder, text, 0)[0]) for _answer, own in PAIRS for text in own]
    weights = {
        token: math.log((len(documents) + 1) / (sum(token in document for document in documents) + 1))
        for token in range(5 + len(WORDS))
    }
    rows = [[oracle(encoder, answer, text, layer, weights if idf else None) for text in own] for answer, own in PAIRS]
    expected = np.mean([np.max(row, axis=0) for row in rows], axis=0)
    for name, value in zip(("precision", "recall", "f1"), expected, strict=True):
        assert found["m"][name]["mean"] == pytest.approx(value, abs=1e-5)
    assert f"layer {layer}, {'idf' if idf else 'no idf'}" in found["about"]


def test_the_package_gives_the_same(encoder: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("bert_score", reason="needs bert-score: pip install bert-score")
    pairs = [(answer, own[:1]) for answer, own in PAIRS]
    scores = package.score(
        [answer for answer, _own in pairs], [own[0] for _answer, own in pairs],
        model_type=str(encoder), num_layers=2, use_fast_tokenizer=True, device="cpu",
    )  # fmt: skip
    found = measured(encoder, tmp_path, pairs)["m"]
    for name, values in zip(("precision", "recall", "f1"), scores, strict=True):
        assert found[name]["mean"] == pytest.approx(float(values.mean()), abs=1e-5)


def test_equal_texts_score_one_and_empty_ones_zero(encoder: Path, tmp_path: Path) -> None:
    equal = measured(encoder, tmp_path, [("the lamp is lit", ["the lamp is lit"])])["m"]
    assert [equal[name]["mean"] for name in ("precision", "recall", "f1")] == pytest.approx([1, 1, 1])
    empty = measured(encoder, tmp_path, [("", ["the lamp is lit"])])["m"]
    assert empty["precision"]["mean"] == empty["f1"]["mean"] == 0


def test_exchanging_answer_and_reference_exchanges_precision_and_recall(encoder: Path, tmp_path: Path) -> None:
    one = measured(encoder, tmp_path, [("the old lamp", ["a door stands"])])["m"]
    other = measured(encoder, tmp_path, [("a door stands", ["the old lamp"])])["m"]
    assert one["precision"]["mean"] == pytest.approx(other["recall"]["mean"])
    assert one["f1"]["mean"] == pytest.approx(other["f1"]["mean"])


def test_rescaling(encoder: Path, tmp_path: Path) -> None:
    raw = measured(encoder, tmp_path, PAIRS[1:2])["m"]
    rescaled = measured(encoder, tmp_path, PAIRS[1:2], rescale=[0.1, 0.2, 0.3])
    for name, base in zip(("precision", "recall", "f1"), (0.1, 0.2, 0.3), strict=True):
        assert rescaled["m"][name]["mean"] == pytest.approx((raw[name]["mean"] - base) / (1 - base))
    assert "rescaled" in rescaled["about"]


def test_a_long_answer_is_cut_and_counted(encoder: Path, tmp_path: Path) -> None:
    found = measured(encoder, tmp_path, [("lamp " * 30, ["lamp"]), ("lamp", ["lamp"])])["m"]
    assert found["cut"]["mean"] == 0.5


def test_settings_are_checked(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 3 layers, and layer 4 is asked for"):
        measured(encoder, tmp_path, PAIRS[:1], layer=4)
    with pytest.raises(Problems, match="three numbers below 1"):
        build("metric", {"name": "bertscore", "rescale": [0.5, 1.0, 0.5]})
    assert BertScore().encoder.base == "roberta-large"


def test_frequencies_of_unseen_tokens() -> None:
    weights = InverseFrequencies([[1, 1, 2], [2, 3]])
    assert (weights[1], weights[2], weights[9]) == pytest.approx((math.log(3 / 2), 0.0, math.log(3)))


def test_the_first_word_is_read_as_after_a_space() -> None:
    from fgrl.models.token_embeddings import TokenEncoder

    seen: list[str] = []

    class ByteLevel:
        add_prefix_space = False

        def __call__(self, text: str, **_options: Any) -> Any:
            seen.append(text)
            return SimpleNamespace(input_ids=[1], special_tokens_mask=[1])

    encoder: Any = SimpleNamespace(tokenizer=ByteLevel(), max_tokens=None)
    TokenEncoder.encode(encoder, "lamp ")
    TokenEncoder.encode(encoder, " ")
    assert seen == [" lamp", ""]
