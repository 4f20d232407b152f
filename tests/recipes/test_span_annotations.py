"""The annotations that ship with the small recipe of span feedback: they are what the written rule says, in the terms of the page."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fgrl.experiments.recipe import load
from fgrl.feedback.page_settings import OTHER, load_settings
from fgrl.types import Sample, Span, read_jsonl

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "recipes" / "small"
FILE = SMALL / "span_annotations.jsonl"
DOCUMENT = (
    "Boss: a person who exercises control over workers.\nOverseer: a person who directs and manages an organization."
)
QUERY = 'What is the difference between "boss" and "overseer"?'


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    """The module of the rule, as the recipe imports it."""
    load(SMALL / "span_chains.yaml")
    return next(
        module for name, module in sys.modules.items() if getattr(module, "SpanRule", None) and "span_rule" in name
    )


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return list(read_jsonl(FILE, Sample))


def test_there_are_at_least_forty_annotated_responses(samples: list[Sample]) -> None:
    responses = [response for sample in samples for response in sample.responses]
    assert len(responses) == 64
    assert all([annotation.by for annotation in response.annotations] == ["rule"] for response in responses)
    spans = [span for response in responses for span in response.spans]
    assert (sum(span.label < 0 for span in spans), sum(span.label > 0 for span in spans)) == (135, 19)


def test_the_file_has_what_the_rule_marks(samples: list[Sample], rule: ModuleType) -> None:
    for sample in samples:
        about = sample.meta["document"], sample.meta["question"]
        for response in sample.responses:
            marked = [rule.as_span(mark) for mark in rule.marks(*about, response.text)]
            stored = sorted(response.spans, key=lambda span: span.start)
            assert [(span.start, span.end, span.label) for span in stored] == [
                (span.start, span.end, span.label) for span in marked
            ]
            for span, own in zip(stored, marked, strict=True):
                assert set(span.reasons) - {OTHER} == set(own.reasons)
                assert span.note == own.note
        better, reason = rule.preference(*about, [response.text for response in sample.responses])
        (verdict,) = sample.verdicts or []
        assert (verdict.verdict, verdict.reason) == ("tie" if better is None else ("first", "second")[better], reason)


def test_every_annotation_is_one_that_the_page_accepts(samples: list[Sample]) -> None:
    settings = load_settings("retrieval")
    for sample in samples:
        assert sample.meta["annotation"]["by"]["rule"]["done"]
        for response in sample.responses:
            (annotation,) = response.annotations
            assert settings.wrong_answers(annotation.answers) is None
            for span in annotation.spans:
                assert settings.wrong_span(int(span.label), span.reasons, span.note or "") is None


def test_the_queries_of_training_validation_and_test_differ(samples: list[Sample]) -> None:
    stages = load(SMALL / "span_chains.yaml").stages
    parts = [{sample.id for sample in samples}]
    parts += [{sample.id for sample in stages[name].prompts.read()} for name in ("policy", "evaluate")]
    assert [len(part) for part in parts] == [32, 12, 24]
    assert not (parts[0] & parts[1])
    assert not (parts[0] & parts[2])
    assert not (parts[1] & parts[2])


# -- the rule ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "label", "reasons"),
    [
        ("A boss is a person who exercises control over workers.", 1, ("useful_fact", "uses_document")),
        ("In conclusion, a boss and an overseer are different.", -1, ("generic",)),
        ("Elephants remember every waterhole between Nairobi and Mombasa.", -1, ("misrepresents_source",)),
        ("A boss exercises control over workers, and a boss exercises control over a person, and over workers in an organization that "
         "a boss directs and manages as a person who exercises control.", -1, ("too_wordy",)),
    ],
)  # fmt: skip
def test_a_sentence_is_marked(sentence: str, label: int, reasons: tuple[str, ...], rule: ModuleType) -> None:
    (mark,) = rule.marks(DOCUMENT, QUERY, sentence)
    assert (mark.start, mark.end, mark.label, mark.reasons) == (0, len(sentence), label, reasons)


def test_a_sentence_that_repeats_earlier_ones_is_disliked(rule: ModuleType) -> None:
    text = "An overseer directs an organization with people. The overseer directs the organization."
    assert [(mark.label, mark.reasons[0]) for mark in rule.marks(DOCUMENT, QUERY, text)][-1] == (-1, "repeats_itself")


def test_an_answer_that_breaks_off_or_is_short_is_disliked(rule: ModuleType) -> None:
    broken = rule.marks(DOCUMENT, QUERY, "A boss exercises control over workers. An overseer directs and")
    assert (broken[-1].reasons, broken[-1].note) == (("generic",), "It breaks off.")
    (short,) = rule.marks(DOCUMENT, QUERY, "  Boss. ")
    assert (short.start, short.end, short.reasons) == (2, 7, ("lacks_depth",))
    assert rule.marks(DOCUMENT, QUERY, "  ") == []


def test_silence_is_not_the_best_answer(rule: ModuleType) -> None:
    good = "A boss is a person who exercises control over workers, and an overseer manages."
    worth = [rule.score(DOCUMENT, QUERY, text) for text in ("", "Boss.", good)]
    assert worth == [-4.0, -4.0, 1.0]


def test_the_better_response_and_why(rule: ModuleType) -> None:
    good = "A boss is a person who exercises control over workers."
    assert rule.preference(DOCUMENT, QUERY, [good, f"{good} In conclusion, it is so."]) == (
        0, "It has fewer disliked sentences: 0 against 1."
    )  # fmt: skip
    assert rule.preference(DOCUMENT, QUERY, [good, good])[0] is None


@pytest.mark.parametrize(
    ("text", "marked", "expected"),
    [
        ("Boss: a person who exercises control over workers. Cows fly over big moons.", "Cows fly over big moons.",
         "Boss: a person who exercises control over workers. Overseer: a person who directs and manages an organization."),
        (f"{DOCUMENT} Cows fly.", "Cows fly.", DOCUMENT),
        (f"Cows fly. {DOCUMENT}", "Cows fly.", DOCUMENT),
    ],
)  # fmt: skip
def test_the_rewriter_takes_from_the_document(text: str, marked: str, expected: str, rule: ModuleType) -> None:
    sample = Sample(id="1", prompt=QUERY, meta={"document": DOCUMENT})
    start = text.index(marked)
    case: Any = type("Case", (), {"sample": sample})()
    first, last, new = rule.FromDocument().edit(text, Span(start=start, end=start + len(marked), label=-1.0), case)
    assert text[:first] + new + text[last:] == expected


@pytest.mark.evidence
def test_a_program_makes_the_file_on_the_page(tmp_path: Path, samples: list[Sample]) -> None:
    """Two items, in Chromium: the same spans and verdicts as in the file."""
    browser = shutil.which("chromium")
    if browser is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("needs Chromium and Playwright")
    bare = []
    for sample in samples[:2]:
        line = json.loads(sample.model_dump_json(exclude_defaults=True))
        del line["verdicts"], line["meta"]["annotation"]
        bare.append(line | {"responses": [{"text": response["text"]} for response in line["responses"]]})
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps(line) + "\n" for line in bare), encoding="utf-8")
    words = [str(ROOT / "tools" / "annotate_by_rule.py"), str(tmp_path / "bare.jsonl"), str(tmp_path / "made.jsonl")]
    subprocess.run([sys.executable, *words, "--browser", browser], check=True, timeout=600)

    def told(sample: Sample) -> Any:
        spans = [[(s.start, s.end, s.label, s.reasons, s.note) for s in r.spans] for r in sample.responses]
        return spans, [(verdict.verdict, verdict.reason) for verdict in sample.verdicts or []]

    assert [*map(told, read_jsonl(tmp_path / "made.jsonl", Sample))] == [*map(told, samples[:2])]
