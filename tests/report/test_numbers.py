"""What an evaluation's `metrics.json` is to the page and to tables."""

from __future__ import annotations

from fgrl.cli.looking import _as_markdown, as_blocks
from fgrl.results.numbers import measures

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
    assert [row.model for row in bleu.rows] == ["sft", "policy"]
    assert (bleu.title, bleu.about) == ("bleu: corpus", ABOUT)
    assert (length.title, length.about) == ("length: words", "")


def test_tables_say_it_once() -> None:
    rows = [
        {"model": model, "number": "bleu", "text": "1", "change": "", "about": ABOUT} for model in ("sft", "policy")
    ]
    measured = {"one": rows, "two": rows, "three": None}
    blocks, markdown = as_blocks(measured), _as_markdown(measured)
    assert blocks.startswith(f"bleu ({ABOUT})\n")
    assert markdown.endswith(f"\n\nbleu: {ABOUT}")
    assert blocks.count(ABOUT) == markdown.count(ABOUT) == 1
