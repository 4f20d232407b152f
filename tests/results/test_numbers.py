"""The numbers of `metrics.json`."""

from __future__ import annotations

from fgrl.runs.results.numbers import headlines, measures

ABOUT = "corpus BLEU, nrefs:1|tok:13a"
REPORT = {
    "baseline": "sft",
    "metrics": {
        "bleu": {
            "policy": {"corpus": {"mean": 30.0, "low": 20.0, "high": 40.0}},
            "sft": {"corpus": {"mean": 10.0, "low": 5.0, "high": 15.0}},
            "differences": {"policy": {"corpus": {"mean": 20.0, "low": 10.0, "high": 30.0}}},
            "about": ABOUT,
        },
        "length": {"sft": {"words": {"mean": 3.0}}},
    },
}


def test_how_a_number_came_about_is_said_and_is_no_model() -> None:
    bleu, length = measures(REPORT)
    assert [number.model for number in bleu.models] == ["sft", "policy"]
    assert (str(bleu.name), bleu.about) == ("bleu.corpus", ABOUT)
    assert (str(length.name), length.about) == ("length.words", "")


def test_bare_numbers_counts_and_damaged_values() -> None:
    report = {
        "metrics": {"kl": {"policy": 0.5, "sft": {"mean": None, "note": "gone", "n": 3}}, "x": {"policy": {"a": "b"}}}
    }
    (kl,) = measures(report)
    assert str(kl.name) == "kl"
    assert [(number.model, number.value.mean, number.value.n) for number in kl.models] == [
        ("policy", 0.5, 0),
        ("sft", None, 3),
    ]
    assert kl.models[1].value.note == "gone"


def test_the_first_number_is_shown_first_and_of_others_those_that_differ() -> None:
    same, before, after = {"mean": 0.0, "low": 0.0, "high": 0.0}, {"mean": 3.0}, {"mean": 2.0}
    report = {
        "metrics": {
            "exact_match": {"sft": same, "policy": same},
            "environment": {"sft": {"return": same, "turns": before}, "policy": {"return": same, "turns": after}},
        }
    }
    shown = headlines(measures(report), "sft")
    assert [str(measure.name) for measure, _, _ in shown] == ["exact_match", "environment.turns"]
