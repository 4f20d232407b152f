"""Chains of rewrites on the page: each step beside the one before, the first response beside the last, and nothing of them runs."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fake_run, write_lines
from pages import HOSTILE, assert_safe, change, page, stage

from fgrl.pages.report.chains import MOST_CHAINS, MOST_STEPS, ShownChain, chains_section, verdicts
from fgrl.pages.report.escaping import MOST_CHARACTERS
from fgrl.types import PairVerdict, Response, Sample

TEXTS = [
    "A boss is a person. In conclusion, bosses are very important. They run firms.",
    "A boss is a person who directs workers. In conclusion, bosses are very important. They run firms.",
    "A boss is a person who directs workers. They run firms.",
]


def chain(texts: list[str] = TEXTS, **changes: Any) -> dict[str, Any]:
    """A sample's line: the first response with what was marked on it, and a rewrite for each mark."""
    spans: list[dict[str, Any]] = [
        {"start": 10, "end": 18, "label": -1.0, "reasons": ["lacks_depth"], "note": "who is it?", "id": "1", "answered_by": 1},
        {"start": 20, "end": 60, "label": -1.0, "reasons": ["unnecessary"], "id": "2", "answered_by": 2},
        {"start": 62, "end": 77, "label": 1.0, "reasons": ["useful_fact"], "id": "3"},
    ]  # fmt: skip
    spans = [span for span in spans if span["end"] <= len(texts[0]) and span.get("answered_by", 0) < len(texts)]
    first = {
        "text": texts[0],
        "by": "smollm2",
        "annotations": [
            {"by": "ada", "spans": spans, "seconds": 41.0, "answers": {"disliked": ["too_long", "off_topic"]}}
        ],
    }
    line = {
        "id": "boss/0", "prompt": "What is a boss?", "chosen": len(texts) - 1,
        "responses": [first, *({"text": text, "by": "rewriter"} for text in texts[1:])],
        "meta": {"chain": {"steps_per_call": "all", "attempts": 2, "refused": ["several edits"]}, "document": "boss: a person"},
    }  # fmt: skip
    return line | changes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose first stage made chains."""
    folder = fake_run(tmp_path, prompts=2, points=3, steps=3)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    stages = summary["stages"]
    stages["samples"]["kind"] = "annotate"
    change(folder / "summary.json", stages=stages)
    return folder


def section(run: Path, lines: list[dict[str, Any]], name: str = "chains") -> str:
    write_lines(stage(run, "samples") / "out" / "samples.jsonl", lines)
    text, parsed = page(run)
    assert_safe(text, parsed)
    drawn = re.search(rf'<section class="{name}".*?</section>', text, re.DOTALL)
    assert drawn, text[:2000]
    return drawn[0]


def section_of(*lines: dict[str, Any]) -> list[ShownChain]:
    return chains_section(map(Sample.model_validate, lines))


def plain(html_text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", "", html_text)))


def test_the_lines_of_these_tests_are_records() -> None:
    assert Sample.model_validate(chain()).responses[0].spans[1].answered_by == 2


def test_a_chain_is_drawn_step_by_step(run: Path) -> None:
    shown = section(run, [chain()])
    steps = re.findall(r'<li class="answer">(.*?)</li>\s*(?=<li class="answer">|</ol>)', shown, re.DOTALL)
    assert len(steps) == 2
    assert "step 1 of 2 · rewriter" in steps[0]
    assert re.findall(r"<(del|ins)>(.*?)</\1>", steps[0]) == [("ins", " who directs workers")]
    assert re.findall(r"<(del|ins)>(.*?)</\1>", steps[1]) == [("del", "In conclusion, bosses are very important. ")]
    assert [re.findall(r"addresses <q[^>]*>(.*?)</q>", step) for step in steps] == [
        ["a person"], ["In conclusion, bosses are very important"]
    ]  # fmt: skip
    assert re.findall(r"<dt>(words \w+)</dt><dd[^>]*>(\d+)</dd>", steps[0]) == [
        ("words removed", "0"),
        ("words added", "3"),
    ]


def test_the_first_response_has_its_likes_and_dislikes_with_reasons(run: Path) -> None:
    words = plain(section(run, [chain()]))
    assert "poor a person — lacks_depth; who is it?; addressed in step 1" in words
    assert "poor In conclusion, bosses are very important — unnecessary; addressed in step 2" in words
    assert "good They run firms. — useful_fact" in words
    assert "time41 s" in words
    assert "dislikedtoo_long, off_topic" in words


def test_the_first_response_is_beside_the_last(run: Path) -> None:
    """Figure 2: what only the first one has is marked there, what only the last one has there."""
    shown = section(run, [chain()])
    left, right = re.findall(r'<div class="answer">\s*<h4>.*?</div>', shown.split('<div class="pair">')[1], re.DOTALL)
    assert "first response · smollm2" in left
    assert re.findall(r"<(del|ins)>(.*?)</\1>", left) == [("del", ". In conclusion, bosses are very important")]
    assert plain(left).endswith(f"{TEXTS[0]} ")
    assert "last rewrite · rewriter" in right
    assert re.findall(r"<(del|ins)>(.*?)</\1>", right) == [("ins", " who directs workers")]
    assert plain(right).endswith(f"{TEXTS[2]} ")
    assert "attempts2" in plain(shown)
    assert "steps per callall" in plain(shown)
    assert "refusedseveral edits" in plain(shown)


def test_chains_are_not_drawn_twice(run: Path) -> None:
    write_lines(stage(run, "samples") / "out" / "samples.jsonl", [chain()])
    text, _ = page(run)
    assert '<section class="annotated"' not in text
    assert '<a href="#chains">Chains</a>' in text


def test_a_page_has_the_first_chains_and_their_first_steps() -> None:
    long = chain([f"text {n}" for n in range(MOST_STEPS + 5)])
    (shown,) = section_of({"id": "no chain", "prompt": "p"}, long)
    assert (len(shown.steps), shown.more_steps) == (MOST_STEPS, 4)
    assert len(section_of(*[chain()] * 50)) == MOST_CHAINS


def test_a_step_without_a_change_is_named(run: Path) -> None:
    shown = section(run, [chain([TEXTS[0], TEXTS[0]])])
    assert "This step changed nothing." in shown


def test_long_texts_are_cut_and_counted() -> None:
    before, after = "a " * MOST_CHARACTERS, "a " * MOST_CHARACTERS + "b"
    (shown,) = section_of(chain([before, after], responses=[{"text": before}, {"text": after}]))
    assert [side.left_out for side in shown.sides] == [len(before) - MOST_CHARACTERS, len(after) - MOST_CHARACTERS]


@pytest.mark.parametrize(
    "line",
    [
        {"meta": {"chain": {}}, "responses": [{"text": "alone"}]},
        {"meta": {"chain": True}, "responses": [{"text": "a"}, {"text": "b"}]},
        {"responses": [{"text": "a"}, {"text": "b"}]},
    ],
)
def test_what_is_no_chain_has_no_section(line: dict[str, Any]) -> None:
    assert section_of({"id": "1", "prompt": "p"} | line) == []


def test_nothing_of_a_chain_runs(run: Path) -> None:
    lines = []
    for text in HOSTILE:
        line = chain([f"before {text}", f"after {text} {text}"])
        line["responses"][0]["annotations"][0]["spans"] = [
            {"start": 0, "end": 6, "label": -1.0, "reasons": [text], "note": text, "answered_by": 1}
        ]
        line["responses"][1]["by"] = text
        line["meta"]["chain"] = {text: text, "attempts": text}
        lines.append(
            line
            | {"prompt": text, "verdicts": [{"first": 0, "second": 1, "verdict": "first", "reason": text, "by": text}]}
        )
    for start in range(0, len(lines), MOST_CHAINS):
        section(run, lines[start : start + MOST_CHAINS])


# -- comparisons ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ({"verdict": "first"}, "response 1 is better than response 3"),
        ({"verdict": "second", "by": "ada"}, "response 3 is better than response 1 (ada)"),
        ({"verdict": "tie"}, "responses 1 and 3 are equally good"),
        ({"verdict": None}, "the verdict on responses 1 and 3 is missing"),
    ],
)
def test_comparisons_in_words(verdict: dict[str, Any], expected: str) -> None:
    responses = [Response(text=text) for text in "abc"]
    compared = [PairVerdict(first=0, second=2, **verdict)]
    (shown,) = verdicts(Sample(id="1", prompt="p", responses=responses, verdicts=compared))
    assert shown == (expected, None)


def test_comparisons_with_reasons_stand_below_their_responses(run: Path) -> None:
    responses = [{"text": "short"}, {"text": "long", "annotations": [{"by": "ada", "critique": "Fine."}]}]
    compared = {"first": 0, "second": 1, "verdict": "second", "reason": "It <i>explains</i> more.", "by": "ada"}
    shown = section(run, [{"id": "1", "prompt": "Why?", "responses": responses, "verdicts": [compared]}], "annotated")
    assert "response 2 is better than response 1 (ada): It <i>explains</i> more." in plain(shown)
    assert "<i>explains</i>" not in shown
    assert "short" in plain(shown), "the response without an annotation is drawn, too"


def test_comparisons_without_a_reason_are_not_drawn_alone(run: Path) -> None:
    responses = [{"text": "short"}, {"text": "long"}]
    compared = {"first": 0, "second": 1, "verdict": "second"}
    write_lines(
        stage(run, "samples") / "out" / "samples.jsonl",
        [{"id": "1", "prompt": "Why?", "responses": responses, "verdicts": [compared]}],
    )
    assert '<section class="annotated"' not in page(run)[0]
