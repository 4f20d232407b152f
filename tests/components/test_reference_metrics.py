"""Metrics against references: other libraries, hand cases, and what must not change a number."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from answer_helpers import answer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU
from sklearn.metrics import accuracy_score, f1_score

from fgrl.base.errors import DataError
from fgrl.components.metrics.bleu import Bleu
from fgrl.components.metrics.choice import Choice, first, listed
from fgrl.components.metrics.exact_match import ExactMatch, squad, triviaqa
from fgrl.components.metrics.rouge import Rouge
from fgrl.components.metrics.yes_no import YesNo, verdict
from fgrl.measuring.answer import Answer
from fgrl.measuring.statistics import Estimate

WORDS = ["a", "the", "cat", "dog", "sat", "on", "mat", "rug", "ran", "home", "quickly", "runs", "running", "Paris"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)
REFERENCES = st.lists(SENTENCES.filter(str.strip), min_size=1, max_size=3)
ROWS = st.lists(st.tuples(SENTENCES, REFERENCES), min_size=1, max_size=6)

TEXT = [
    ExactMatch(),
    ExactMatch(match="contains"),
    Rouge(),
    Rouge(stemmer=True),
    Bleu(),
    Bleu(aggregate="corpus", max_ngram=2),
]
ALL = [*TEXT, YesNo(), Choice(), Choice(answers="several")]


def name(metric) -> str:
    return (
        f"{type(metric).__name__}-{'-'.join(str(getattr(metric, field)) for field in sorted(metric.model_fields_set))}"
    )


def answer(response: str, references: list[str], id: str = "0") -> Answer:
    return answer_of(id, "p", response, finished=True, references=references)


def rows(*pairs: tuple[str, list[str]]) -> list[Answer]:
    return [answer(said, references, str(n)) for n, (said, references) in enumerate(pairs)]


def measured(metric, answers: list[Answer]) -> dict[str, Estimate]:
    (result,) = metric.measure({"model": answers}).values()
    return {number: Estimate.model_validate(found) for number, found in result["model"].items()}


def means(metric, answers: list[Answer]) -> dict[str, float | None]:
    return {number: found.mean for number, found in measured(metric, answers).items()}


def value(metric, said: str, *references: str) -> float | None:
    return next(iter(means(metric, [answer(said, list(references))]).values()))


# -- references --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ALL, ids=name)
def test_a_prompt_without_a_reference_is_an_error_that_names_the_fix(metric) -> None:
    for nothing in ([], [" "]):
        with pytest.raises(DataError, match=r"prompt '1' has no reference .*`columns: \{reference: ...\}`"):
            metric.measure({"model": [answer("1", ["yes 1"], "0"), answer("1", nothing, "1")]})


@pytest.mark.parametrize("metric", ALL, ids=name)
def test_nothing_is_scored_against_a_refusal(metric) -> None:
    """Prompts that have only refusals are left out; beside another reference a refusal does not count."""
    refused = [answer("No Answer Present.", ["No Answer Present.", "no answer present"], "1")]
    assert {number.mean for number in measured(metric, refused).values()} == {None}
    alone = measured(metric, [answer("yes 1", ["yes 1"])])
    beside = measured(metric, [answer("yes 1", ["No Answer Present.", "yes 1"]), *refused])
    for number, found in beside.items():
        assert (found.mean, found.n, found.groups) == (alone[number].mean, 1, 1)
    assert value(ExactMatch(refusals=[]), "No answer present", "No Answer Present.") == 1.0


@pytest.mark.parametrize("metric", ALL, ids=name)
def test_strict_json_with_paired_differences(metric) -> None:
    base = rows(("yes 1", ["yes 1"]), ("no 2", ["yes 1"]), ("", ["no 2"]), ("no 3", ["no 3"]))
    best = rows(("yes 1", ["yes 1"]), ("yes 1", ["yes 1"]), ("no 2", ["no 2"]), ("no 3", ["no 3"]))
    result = metric.measure({"sft": base, "policy": best[::-1]}, baseline="sft")
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    (found,) = result.values()
    assert "mean" not in found["sft"]  # which would read as one estimate
    number = next(iter(found["policy"]))
    same = metric.measure({"sft": base, "policy": base}, baseline="sft")
    zero = next(iter(same.values()))["differences"]["policy"][number]
    assert (zero["mean"], zero["low"], zero["high"]) == (0, 0, 0)
    change = found["differences"]["policy"][number]
    assert change["mean"] == pytest.approx(found["policy"][number]["mean"] - found["sft"][number]["mean"])
    assert change["mean"] > 0
    assert change["groups"] == 4


@pytest.mark.parametrize("metric", TEXT, ids=name)
@settings(max_examples=25, deadline=None)
@given(data=ROWS, seed=st.integers(0, 99))
def test_order_changes_nothing(metric, data, seed) -> None:
    """Neither of prompts nor of references."""
    shuffled = random.Random(seed)
    metric = metric.model_copy(update={"resamples": 100})
    straight = rows(*data)
    turned = [
        answer(one.text, shuffled.sample(one.references, len(one.references)), one.id)
        for one in shuffled.sample(straight, len(straight))
    ]
    assert means(metric, turned) == pytest.approx(means(metric, straight), nan_ok=True)


@pytest.mark.parametrize("metric", [metric for metric in TEXT if "corpus" not in name(metric)], ids=name)
@settings(max_examples=25, deadline=None)
@given(said=SENTENCES, references=REFERENCES, more=SENTENCES.filter(str.strip))
def test_a_further_reference_never_lowers_a_score_and_the_best_one_counts(metric, said, references, more) -> None:
    metric = metric.model_copy(update={"resamples": 100})
    found = means(metric, [answer(said, references)])
    each = [means(metric, [answer(said, [one])]) for one in references]
    again = means(metric, [answer(said, [*references, more])])
    for number, score in found.items():
        assert score == pytest.approx(max(one[number] for one in each))
        assert again[number] >= score - 1e-12


# -- exact match -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "as_squad", "as_triviaqa"),
    [
        ("The Eiffel Tower.", "eiffel tower", "eiffel tower"),
        ("  an  apple,\ta pear ", "apple pear", "apple pear"),
        ("twenty-one", "twentyone", "twenty one"),
        ("U.S.A.", "usa", "u s"),  # a lone letter a is an article there
        ("theatre and another", "theatre and another", "theatre and another"),
        ("rock_'n'_roll", "rocknroll", "rock n roll"),
        ("L’Étoile", "l’étoile", "l étoile"),
        ("The!", "", ""),
    ],
)
def test_normalisation(text: str, as_squad: str, as_triviaqa: str) -> None:
    assert (squad(text), triviaqa(text)) == (as_squad, as_triviaqa)


def test_exact_match() -> None:
    assert value(ExactMatch(), "the Beatles!", "Rolling Stones", "Beatles") == 1.0
    assert value(ExactMatch(), "It was the Beatles", "Beatles") == 0.0
    assert value(ExactMatch(normalize="none"), " Beatles\n", "Beatles") == 1.0
    assert value(ExactMatch(normalize="none"), "beatles", "Beatles") == 0.0
    assert value(ExactMatch(normalize="triviaqa"), "twenty one", "Twenty-One") == 1.0
    assert value(ExactMatch(), "twenty one", "Twenty-One") == 0.0
    assert value(ExactMatch(), "", "The") == 1.0  # as SQuAD's own


def test_contains_means_whole_words() -> None:
    contains = ExactMatch(match="contains")
    assert value(contains, "It was the Beatles, I think.", "The Beatles") == 1.0
    assert value(contains, "Concatenate.", "cat") == value(contains, "a bobcat", "cat") == 0.0
    assert value(contains, "It costs $5 (or less)", "5 or less") == 1.0
    assert value(contains, "nothing at all", "the") == 0.0
    assert value(ExactMatch(match="contains", normalize="none"), "in C++ or C", "C++") == 1.0


# -- ROUGE -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stemmer", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=ROWS)
def test_rouge_is_the_library_s(stemmer, data) -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmer)
    found = means(Rouge(stemmer=stemmer, resamples=100), rows(*data))
    for kind in ("rouge1", "rouge2", "rougeL"):
        best = [max(scorer.score(one, said)[kind].fmeasure for one in references) for said, references in data]
        assert found[kind] == pytest.approx(np.mean(best))


def test_rouge_by_hand() -> None:
    found = means(Rouge(), [answer("the cat sat", ["the cat ran home"])])
    assert found == {"rouge1": pytest.approx(4 / 7), "rouge2": pytest.approx(2 / 5), "rougeL": pytest.approx(4 / 7)}
    assert value(Rouge(), "runs", "running") == 0.0
    assert value(Rouge(stemmer=True), "runs", "running") == 1.0


# -- BLEU --------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=ROWS)
def test_mean_bleu_is_sacrebleu_s(data) -> None:
    scorer = BLEU(effective_order=True)
    best = [max(scorer.sentence_score(said, [one]).score for one in references) for said, references in data]
    assert means(Bleu(resamples=100), rows(*data)) == {"bleu": pytest.approx(np.mean(best))}


def corpus(data: list[tuple[str, list[str]]], **options) -> float:
    most = max(len(references) for _, references in data)
    streams = [[some[n] if n < len(some) else None for _, some in data] for n in range(most)]
    return BLEU(**options).corpus_score([said for said, _ in data], streams).score


@settings(max_examples=40, deadline=None)
@given(data=ROWS, order=st.integers(1, 4), lowercase=st.booleans())
def test_corpus_bleu_is_sacrebleu_s(data, order, lowercase) -> None:
    metric = Bleu(aggregate="corpus", max_ngram=order, lowercase=lowercase, resamples=100)
    expected = corpus(data, max_ngram_order=order, lowercase=lowercase)
    assert means(metric, rows(*data)) == {"corpus": pytest.approx(expected)}


def test_the_interval_of_corpus_bleu_counts_anew_in_each_draw() -> None:
    """The same draws, each scored by sacrebleu as a corpus of its own; two answers to a prompt are drawn together."""
    data = [
        ("the cat sat on the mat", ["the cat sat on a mat", "a cat sat on the mat"]),
        ("dogs run home quickly at night", ["dogs run home at night"]),
        ("he was born in the city of Paris", ["he was born in Paris", "born in the city of Paris"]),
        ("nothing of that kind at all here", ["nothing of the kind at all"]),
        ("the cat sat on it for a day", ["the cat sat on it for two days"]),
    ]
    ids = ["0", "1", "2", "3", "0"]
    answers = [answer(said, references, id) for (said, references), id in zip(data, ids, strict=True)]
    found = measured(Bleu(aggregate="corpus", resamples=300, seed=5), answers)["corpus"]
    draws = np.random.default_rng(5).multinomial(4, np.full(4, 1 / 4), size=300)
    scores = [corpus([row for row, id in zip(data, ids, strict=True) for _ in range(draw[int(id)])]) for draw in draws]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(scores, [0.025, 0.975])))
    assert found.low < found.mean < found.high
    assert (found.n, found.groups) == (5, 4)


def test_bleu_has_its_signature() -> None:
    one, two = rows(("the cat", ["the cat"])), rows(("the cat", ["the cat", "a cat"]), ("x", ["y"]))
    scorer = BLEU(effective_order=True)
    scorer.sentence_score("x", ["y"])
    about = Bleu().measure({"model": two})["bleu"]["about"]
    assert about == f"mean of sentence BLEU, best reference, {scorer.get_signature()}"
    assert "nrefs:var|case:lc|eff:no|tok:char" in Bleu(aggregate="corpus", lowercase=True, tokenize="char").about(
        {"m": two}
    )
    assert "corpus BLEU, up to 1-grams, nrefs:1|" in Bleu(aggregate="corpus", max_ngram=1).about({"model": one})


# -- yes or no ---------------------------------------------------------------------------------------------------------

REPLIES = st.sampled_from(["Yes", "yes, it is.", "**No**", "no", "<b>No</b>", "Maybe", "", "I think yes", "  \nNO!"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes", "yes"), ("**No**, because yes", "no"), ("<answer>yes</answer>", "yes"), ("\n- no.", "no"), ("_Yes_", "yes"),
        ("", None), ("nope", None), ("Not at all", None), ("It is fair: yes", None), ("yesterday", None), ("…", None),
    ],
)  # fmt: skip
def test_the_first_word_decides(text: str, said: str | None) -> None:
    assert verdict(text) == said


@pytest.mark.parametrize("positive", ["yes", "no"])
@settings(max_examples=40, deadline=None)
@given(data=st.lists(st.tuples(REPLIES, st.sampled_from(["yes", "no"])), min_size=1, max_size=12))
def test_accuracy_and_f1_are_scikit_learn_s(positive, data) -> None:
    """An answer that says neither is a third class."""
    said, wanted = [verdict(text) or "neither" for text, _ in data], [want for _, want in data]
    found = means(YesNo(positive=positive, resamples=100), rows(*((text, [want]) for text, want in data)))
    assert found["accuracy"] == pytest.approx(accuracy_score(wanted, said))
    assert found["unparsed"] == pytest.approx(said.count("neither") / len(said))
    if positive in said or positive in wanted:
        scores = f1_score(wanted, said, labels=[positive], average=None, zero_division=0)
        assert found["f1"] == pytest.approx(scores[0])
    else:
        assert found["f1"] is None

    kept = [(one, want) for one, want in zip(said, wanted, strict=True) if one != "neither"]
    left = measured(YesNo(unparsed="missing", resamples=100), rows(*((text, [want]) for text, want in data)))
    assert (left["accuracy"].n, left["unparsed"].n) == (len(kept), len(data))
    if kept:
        assert left["accuracy"].mean == pytest.approx(np.mean([one == want for one, want in kept]))


@pytest.mark.parametrize(
    ("metric", "text", "references", "decided"),
    [
        (YesNo(), "No, never", ["no"], (True, [])),
        (YesNo(), "Yes", ["no"], (False, [])),
        (YesNo(), "Maybe", ["no"], (False, [])),
        (YesNo(unparsed="missing"), "Maybe", ["no"], (None, [])),
        (YesNo(), "Yes", [], None),
        (Choice(), "It is 2.", ["[2]"], (True, [])),
        (Choice(), "It is 3.", ["[2]"], (False, [])),
        (Choice(unparsed="missing"), "None", ["[2]"], (None, [])),
        (Choice(answers="several"), "[1, 2]", ["[2, 1]"], (True, [])),
        (Choice(answers="several"), "[1]", ["[2, 1]"], (False, [])),
        (Choice(), "It is 2.", [], None),
    ],
)
def test_single_answers_pass_or_fail(metric: Any, text: str, references: list[str], decided: Any) -> None:
    (answer,) = rows((text, references))
    assert metric.verdict(answer) == decided


def test_the_interval_of_f1_counts_anew_in_each_draw() -> None:
    said, wanted = ["yes", "no", "yes", "yes", "no", "no", "yes"], ["yes", "yes", "no", "yes", "no", "yes", "yes"]
    found = measured(
        YesNo(positive="yes", resamples=300, seed=2),
        rows(*((one, [want]) for one, want in zip(said, wanted, strict=True))),
    )
    draws = np.random.default_rng(2).multinomial(7, np.full(7, 1 / 7), size=300)
    scores = [f1_score(wanted, said, pos_label="yes", sample_weight=draw) for draw in draws]
    assert (found["f1"].low, found["f1"].high) == pytest.approx(tuple(np.quantile(scores, [0.025, 0.975])))


def test_the_default_class_is_the_only_one_that_fits_the_paper_s_climate_fever() -> None:
    """Table 3, Llama3 without search: from accuracy and F1 follows the share of right answers outside the class."""
    accuracy, score, supports, refutes = 0.7740, 0.5824, 654, 253
    inside = score * (1 - accuracy) / (2 * (1 - score))  # TP, of F1 = 2 TP / (2 TP + 1 - accuracy)
    outside = accuracy - inside
    assert refutes / (supports + refutes) < outside < supports / (supports + refutes)
    assert YesNo().positive == "no"


def test_a_reference_that_is_neither_is_refused() -> None:
    with pytest.raises(DataError, match=r"prompt '0' is 'SUPPORTED', which is neither yes nor no: point"):
        YesNo().measure({"model": [answer("yes", ["SUPPORTED"])]})
    with pytest.raises(DataError, match="is 'yes' and 'No'"):
        YesNo().measure({"model": [answer("yes", ["yes", "No"])]})


# -- choices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "one", "several"),
    [
        ("2", {2}, [2]),
        ("'3'", {3}, [3]),
        ("Answer: 4. It is 4, not 5.", {4}, [4, 4, 5]),
        ("[1, 3, 4]", {1}, [1, 3, 4]),
        ("The right ones are [2,5].\nNot [1].", {2}, [2, 5]),
        ("1, 3 and 4\n7", {1}, [1, 3, 4]),
        ("[]\n2", {2}, [2]),
        ("['1', __import__('os').abort()]", {1}, [1]),
        ("3.5 or -2 or 2nd or x1", set(), []),
        ("none of them", set(), []),
        ("9" * 5000, set(), []),
    ],
)
def test_numbers_are_found_and_nothing_is_evaluated(text: str, one: set[int], several: list[int]) -> None:
    assert (first(text), listed(text)) == (one, several)


def test_one_choice() -> None:
    found = means(Choice(), rows(("2", ["2"]), ("1) no", ["2"]), ("none", ["2"]), ("3", ["2", "3"])))
    assert found == {"accuracy": 0.5, "unparsed": 0.25}
    left = means(Choice(unparsed="missing"), rows(("2", ["2"]), ("1) no", ["2"]), ("none", ["2"]), ("3", ["2", "3"])))
    assert left == {"accuracy": pytest.approx(2 / 3), "unparsed": 0.25}


def test_several_choices_are_a_set() -> None:
    metric = Choice(answers="several")
    assert means(metric, [answer("[1, 3]", ["[1, 4, 3]"])]) == {
        "f1": pytest.approx(0.8), "precision": 1.0, "recall": pytest.approx(2 / 3), "exact": 0.0, "unparsed": 0.0,
    }  # fmt: skip
    assert means(metric, [answer("[3, 1, 1]", ["1", "3"])])["exact"] == 1.0
    assert means(metric, [answer("[2]", ["[1]"])]) == dict.fromkeys(
        ["f1", "precision", "recall", "exact", "unparsed"], 0
    )
    mute = means(metric, [answer("none", ["[1]"])])
    assert mute == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "exact": 0.0, "unparsed": 1.0}


def test_a_reference_without_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="is 'Paris', which names no number of a choice"):
        Choice().measure({"model": [answer("1", ["Paris"])]})


def test_options_are_checked() -> None:
    for bad in (lambda: Bleu(max_ngram=5), lambda: YesNo(positive="maybe"), lambda: ExactMatch(normalize="lower")):
        with pytest.raises(ValidationError):
            bad()
