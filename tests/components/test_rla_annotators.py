"""Scores by similarity and by cross-entropy, and the pairs they make."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.components.annotators.cross_entropy import CrossEntropy
from fgrl.components.annotators.similarity import Similarity
from fgrl.components.metrics.similarity import SimilarityMetric
from fgrl.components.pair_builders.all_ranked import AllRanked
from fgrl.experiments.pipeline.run import Run
from fgrl.feedback.rules.refusals import answers_among
from fgrl.kinds import PairBuilder
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring.closeness import EMPTY
from fgrl.measuring.held_out import judged
from fgrl.registry import Problems, build
from fgrl.types import Response, Sample

# RLA, appendix E: label, answer, printed cosine
PRINTED = [
    ("Homologous", "Homologous.", 0.9715),
    ("Homologous", "Derived characters.", 0.2054),
    (
        "The definition of a violation is a breach of a law or of a code of behavior.",
        'According to the web information, a violation is defined as "a breach of a law or of a code of behavior" and can '
        "also be referred to as an infraction, transgression, or offense against the public welfare.",
        0.9463,
    ),
    (
        "The definition of a violation is a breach of a law or of a code of behavior.",
        "According to Wikipedia, the concept of probation first developed in the United States in 1841 when John Augustus, "
        "a Boston cobbler, persuaded a judge to give him custody of a convicted offender for a brief period and then helped "
        "the man appear rehabilitated by the time of sentencing.",
        0.0796,
    ),
    ("true", "TRUE", 1.0),
    ("true", "TRUE. The small air sacs in the lungs where gas exchange occurs are called alveoli.", 0.0437),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("scores", tmp_path / "stage", cache=tmp_path / "cache")


def of(texts: list[str], reference: Any, identity: str = "a") -> Sample:
    return Sample(
        id=identity, prompt="?", reference=reference, responses=[Response(text=text) for text in texts], meta={"k": 1}
    )


def ranked(*scored: tuple[str, float | None], **options: Any) -> list[tuple[str, str]]:
    sample = Sample(id="a", prompt="?", responses=[Response(text=text, score=score) for text, score in scored])
    return [(pair.chosen, pair.rejected) for pair in AllRanked(**options).build(sample)]


def test_the_paper_s_six_similarities(run: Run) -> None:
    annotator = Similarity()
    annotator.setup(run)
    found = annotator.annotate([of([answer], label, str(i)) for i, (label, answer, _) in enumerate(PRINTED)])
    assert [round(sample.responses[0].score or 0, 4) for sample in found] == [printed for *_, printed in PRINTED]


def test_the_closest_of_several_references_counts_and_refusals_never_do(run: Run) -> None:
    annotator = Similarity()
    annotator.setup(run)
    samples = [
        of(["a cat", ""], ["a dog", "a cat", "No Answer Present."], "several"),
        of(["No answer present"], ["no answer present"], "refusal"),
        of(["a cat"], None, "none"),
        of([], "a cat", "empty"),
    ]
    before = [sample.model_copy(deep=True) for sample in samples]
    (kept,) = annotator.annotate(samples)
    assert samples == before
    assert kept.id == "several"
    assert kept.responses[0].score == pytest.approx(1.0, abs=1e-6)
    assert kept.responses[1].score == EMPTY
    assert kept.meta == {"k": 1}
    assert annotator.counts() == {"without a reference": 2, "without responses": 1}


def test_a_text_is_embedded_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fgrl.models.embeddings import SentenceEncoder

    asked: list[str] = []
    encode = SentenceEncoder._encode
    monkeypatch.setattr(SentenceEncoder, "_encode", lambda self, texts: asked.extend(texts) or encode(self, texts))
    scores = []
    for _ in range(2):
        annotator = Similarity()
        annotator.setup(run)
        scores.append([one.score for one in annotator.annotate([of(["x", "x", "y"], ["y", "z"])])[0].responses])
    assert sorted(asked) == ["x", "y", "z"]
    assert scores[0] == scores[1]


def test_the_encoder_is_a_plain_name() -> None:
    with pytest.raises(ValueError, match="no head, adapter"):
        Similarity(encoder=ModelSpec(base="all-minilm-l6-v2", head="scalar"))


def test_the_metric_is_the_annotator_s_number(run: Run) -> None:
    metric = SimilarityMetric()
    metric.setup(run)
    answers = [
        answer_of(str(i), "?", answer, finished=True, references=[label])
        for i, (label, answer, _) in enumerate(PRINTED)
    ]
    answers.append(answer_of("refused", "?", "x", finished=True, references=["No Answer Present."]))
    found = metric.measure({"policy": answers})["similarity"]["policy"]["cosine"]
    assert found["mean"] == pytest.approx(sum(printed for *_, printed in PRINTED) / len(PRINTED), abs=1e-4)
    assert found["n"] == len(PRINTED)


def test_the_cosine_of_each_answer_is_recorded_with_it(run: Run) -> None:
    """The six that the paper prints in appendix E; none for an answer without a reference."""
    metric = SimilarityMetric()
    metric.setup(run)
    answers = [
        answer_of(str(i), "?", answer, finished=True, references=[label])
        for i, (label, answer, _) in enumerate(PRINTED)
    ]
    answers.insert(1, answer_of("refused", "?", "x", finished=True, references=["No Answer Present."]))
    recorded = [answer.scores for answer in judged([metric], answers)]
    assert recorded.pop(1) == {}
    assert [one["similarity.cosine"] for one in recorded] == pytest.approx([p for *_, p in PRINTED], abs=1e-4)


def test_the_metric_treats_references_as_the_others_do(run: Run) -> None:
    """A prompt that the data gave no reference stops it; one that has refusals alone is left out."""
    metric = SimilarityMetric()
    metric.setup(run)
    answers = [
        answer_of("known", "?", "x", finished=True, references=["x"]),
        answer_of("refused", "?", "x", finished=True, references=["No Answer Present."]),
        answer_of("forgotten", "?", "x", finished=True),
    ]
    with pytest.raises(DataError, match="prompt 'forgotten' has no reference"):
        metric.measure({"policy": answers})
    assert metric.measure({"policy": answers[1:2]})["similarity"]["policy"]["cosine"]["mean"] is None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, []),
        ("Rome", ["Rome"]),
        (["", " ", "Rome"], ["Rome"]),
        (["no  answer present", "NO ANSWER, PRESENT!", "No Answer Present.", "no answer"], ["no answer"]),
        (["+", "No Answer Present."], ["+"]),
    ],
)
def test_references_that_are_answers(given: Any, wanted: list[str]) -> None:
    assert answers_among(given, ["No Answer Present.", "..."]) == wanted


# -- cross-entropy -----------------------------------------------------------------------------------------------------


def test_cross_entropy_against_a_forward_of_each_label_alone(tiny_model_dir: Path, run: Run) -> None:
    import torch

    annotator = CrossEntropy(model=ModelSpec(base=str(tiny_model_dir)), micro_batch_size=2)
    annotator.setup(run)
    samples = [
        of(["the old mill", "a lamp", ""], ["the river runs", "bread"], "one"),
        of(["she reads"], "No answer present", "r"),
        of([], "bread", "none"),
        of(["", ""], "bread", "silent"),
    ]
    (found,) = annotator.annotate(samples)
    assert annotator.counts() == {
        "without a reference": 1,
        "without responses": 1,
        "of empty responses alone": 1,
    }
    model = run.model(ModelSpec(base=str(tiny_model_dir)))
    tokenizer = model.tokenizer
    from fgrl import rollouts

    prompt = list(rollouts.encode_prompt(tokenizer, "?").token_ids)
    for response in found.responses[:2]:
        written = tokenizer(response.text, add_special_tokens=False).input_ids
        best = []
        for label in ("the river runs", "bread"):
            target = tokenizer(label, add_special_tokens=False).input_ids
            m = min(len(written), len(target))
            with torch.no_grad():
                logits = model.transformer(torch.tensor([prompt + written[:m]])).logits[0, len(prompt) - 1 : -1]
            best.append(float(-torch.nn.functional.cross_entropy(logits.float(), torch.tensor(target[:m]))))
        assert response.score == pytest.approx(max(best), abs=1e-4)
    assert found.responses[2].score is None


# -- pairs -------------------------------------------------------------------------------------------------------------


def test_all_pairs_of_three() -> None:
    assert ranked(("low", 0.1), ("high", 0.9), ("middle", 0.5)) == [
        ("high", "low"),
        ("middle", "low"),
        ("high", "middle"),
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [("a", "b"), ("a", "c"), ("b", "c")]),
        ({"ties": "drop"}, [("a", "c"), ("b", "c")]),
        ({"ties": "drop", "min_margin": 0.35}, [("a", "c"), ("b", "c")]),
        ({"ties": "drop", "min_margin": 0.5}, []),
        ({"max_per_prompt": 1}, [("a", "c")]),
    ],
)
def test_ties_and_margins(options: dict[str, Any], wanted: list[tuple[str, str]]) -> None:
    assert ranked(("a", 0.75), ("b", 0.75), ("c", 0.375), **options) == wanted


def test_random_ties_are_the_sample_s_own() -> None:
    sides = {
        tuple((p.chosen, p.rejected) for p in AllRanked(ties="random", seed=seed).build(
            Sample(id="a", prompt="?", responses=[Response(text="a", score=1.0), Response(text="b", score=1.0)])
        ))
        for seed in range(20)
    }  # fmt: skip
    assert sides == {(("a", "b"),), (("b", "a"),)}
    assert ranked(("a", 1.0), ("b", 1.0), ties="random") == ranked(("a", 1.0), ("b", 1.0), ties="random")


def test_one_text_drawn_twice() -> None:
    drawn = (("a", 0.9), ("a ", 0.9), ("b", 0.1))
    assert ranked(*drawn) == [("a", "b"), ("a ", "b")]
    assert ranked(*drawn, duplicates="merge") == [("a", "b")]


def test_what_cannot_be_ranked() -> None:
    assert ranked(("a", None), ("b", 0.5)) == []
    with pytest.raises(DataError, match="annotate"):
        ranked(("a", None), ("b", None))
    with pytest.raises(DataError, match="sample a has no responses"):
        AllRanked().build(Sample(id="a", prompt="?"))
    with pytest.raises(Problems, match="ties: drop"):
        build(PairBuilder, {"name": "all_ranked", "min_margin": 0.1})


def test_unfinished_responses_can_stay_out() -> None:
    responses = [
        Response(text="a", score=1.0, finished=False),
        Response(text="b", score=0.5),
        Response(text="c", score=0.0),
    ]
    sample = Sample(id="a", prompt="?", responses=responses, meta={"query": 7})
    (pair,) = AllRanked(finished_only=True).build(sample)
    assert (pair.chosen, pair.rejected) == ("b", "c")
    assert pair.meta == {"query": 7, "chosen_score": 0.5, "rejected_score": 0.0}


@given(
    st.lists(st.integers(0, 5).map(lambda n: n / 4), min_size=2, max_size=7),
    st.sampled_from(["first", "drop", "random"]),
)
def test_pairs_are_all_of_them_the_better_first(scores: list[float], ties: Any) -> None:
    sample = Sample(
        id="a", prompt="?", responses=[Response(text=str(i), score=score) for i, score in enumerate(scores)]
    )
    pairs = AllRanked(ties=ties).build(sample)
    unequal = sum(a != b for a, b in combinations(scores, 2))
    everything = len(scores) * (len(scores) - 1) // 2
    assert len(pairs) == (unequal if ties == "drop" else everything)
    assert len({frozenset((pair.chosen, pair.rejected)) for pair in pairs}) == len(pairs)
    assert all(pair.meta["chosen_score"] >= pair.meta["rejected_score"] for pair in pairs)
