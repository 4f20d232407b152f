"""Which tokens each verdict depends on: the right tokens in the right shade, and nothing of the data runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fake_run, write_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import HOSTILE, assert_safe, page, stage
from transformers import AutoTokenizer

from fgrl import rollouts
from fgrl.measuring.answer import Answer
from fgrl.pages.report.attribution import BEFORE, MOST_CRITERIA, MOST_PROMPTS, criteria_section, first_drawn
from fgrl.pages.report.drawing import MOST_TOKENS, Piece, ShownAnswer, pieces
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.types import Response, Sample

ITEM = re.compile(r'<i class="t ([^"]*)" title="([^"]*)">(.*?)</i>')


def line(text: str = "a ride.", model: str = "sft", id: str = "1", **criteria: list[tuple[str, Any, Any]]) -> dict[str, Any]:  # fmt: skip
    """An answer of a token a character and the end, held against criteria (text, verdict, relevance)."""
    told = {
        reward: [{"text": text, "kept": kept, "relevance": relevance} for text, kept, relevance in some]
        for reward, some in criteria.items()
    }
    size = len(text)
    offsets = [[i, i + 1] for i in range(size)] + [[size, size]]
    return {
        "model": model, "sample": {"id": id, "prompt": f"prompt {id}"}, "response": {"text": text, "finished": True},
        "tokens": [*text, "</s>"], "offsets": offsets, "criteria": told,
    }  # fmt: skip


def answer(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> MarkedTokens:
    sample = Sample(id="1", prompt="p")
    return MarkedTokens.of(Answer(sample=sample, response=Response(text=text), tokens=tokens, offsets=offsets))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=2, points=3, steps=3)


def shown(run: Path, rows: list[dict[str, Any]]) -> tuple[str, str]:
    """The section about criteria, and its words."""
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", rows)
    text, parsed = page(run)
    assert_safe(text, parsed)
    found = re.search(r'<section class="criteria".*?</section>', text, re.DOTALL)
    assert found
    return found[0], re.sub(r"\s+", " ", re.sub("<[^>]*>", "", found[0]))


def cases(section: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(verdict, (classes, title, html) of each piece) of every drawing."""
    answers = re.findall(r'<div class="answer">(.*?)</div>', section, re.DOTALL)
    return [(re.search(r'class="criterion-verdict \w+">(.*?)<', one)[1], ITEM.findall(one)) for one in answers]  # type: ignore[index]


def test_the_answer_that_keeps_a_criterion_stands_beside_the_one_that_breaks_it(run: Path) -> None:
    rows = [
        line("ab", "policy", rubric=[("no x", True, [0, 0.3, 1])]),
        line("x", "sft", rubric=[("no x", False, [0.95, 0.04])]),
        line("y", "sft", rubric=[("no x", None, None)]),
    ]
    section, words = shown(run, rows)
    assert cases(section) == [
        ("✓ kept", [("", "token 1 of 3 · relevance 0", "a"), ("p2", "token 2 of 3 · relevance 0.300", "b"),
                    ("p5 strong end", "token 3 of 3 · relevance 1 · ends the answer", "&lt;/s&gt;")]),
        ("✗ broken", [("n5 strong", "token 1 of 2 · relevance 0.950", "x"),
                      ("end", "token 2 of 2 · relevance 0.0400 · ends the answer", "&lt;/s&gt;")]),
    ]  # fmt: skip
    assert "no x kept: sft 0 of 1, policy 1 of 1; 1 verdict is missing" in words
    assert "1 of 2 tokens have a relevance of 0.5 or more" in words
    assert "All 1 prompt with a rubric" in words


def test_the_page_leads_to_the_section_only_where_there_is_one(run: Path) -> None:
    shown(run, [line(rubric=[("c", True, [0] * 8)])])
    assert 'href="#criteria"' in page(run)[0]
    for rows in ([line()], [line(rubric=[])], [{}], []):
        write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", rows)
        text, _ = page(run)
        assert 'href="#criteria"' not in text
        assert 'class="criteria"' not in text


def test_answers_before_criteria_were_kept_still_have_a_page(run: Path) -> None:
    old = line()
    del old["criteria"]
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", [old])
    assert "a ride." in re.sub("<[^>]*>", "", page(run)[0])


def test_verdicts_without_relevance_are_told_and_not_drawn(run: Path) -> None:
    section, words = shown(run, [line(rubric=[("c", True, None), ("d", None, None)])])
    assert "set relevance in the rubric reward" in words
    assert not cases(section)


def test_what_is_missing_beside_what_is_known(run: Path) -> None:
    rows = [
        line("ab", rubric=[("a", True, [1, 0, 0]), ("b", None, None), ("c", False, None), ("d", True, [1, 1])]),
        line("", "policy", rubric=[("a", False, [1])]),
        {"model": "old", "sample": {"id": "1", "prompt": "p"}, "response": {"text": "none of it"}},
    ]
    section, words = shown(run, rows)
    assert [said for said, _ in cases(section)] == ["✓ kept", "✗ broken", "? missing", "✗ broken", "✓ kept"]
    assert "policy ✗ broken empty" in words
    assert "no verdict is known" in words
    assert "There is no verdict that could depend on tokens." in words
    assert "Which tokens the verdict depends on is not known." in words
    assert "2 relevances do not fit 3 tokens, so none is drawn." in words
    assert "No answer keeps it." in words
    assert "No answer breaks it." in words
    assert not [
        classes for _, pieces in cases(section)[2:] for classes, *_ in pieces if re.search("[pn][1-5]", classes)
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_the_data_becomes_markup(run: Path, text: str) -> None:
    rows = []
    for kept in (True, False, None):
        row = line("xy", text, text) | {
            "sample": {"id": "1", "prompt": text}, "response": {"text": text}, "tokens": [text, text, text],
            "offsets": [[0, len(text)], [1, 1], [0, 1]],
            "criteria": {text: [{"text": text, "kept": kept, "relevance": [1, 0.5, 0] if kept else None}] * 2},
        }  # fmt: skip
        rows += [row, row | {"offsets": []}]
    section, _ = shown(run, [*rows, line(r=[("c", True, [1] * 8)])])
    assert not re.search("<(script|img|svg)", section)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]", section)
    assert "1337" not in section


def test_long_files_stay_small_and_say_so(run: Path) -> None:
    """Prompts with answers on both sides come first; what is left out is counted."""
    many = [(f"c{n}", True, [0.9] * 401) for n in range(MOST_CRITERIA + 3)]
    rows = [line("x" * 400, id=str(n), a=many, b=many, c=many, d=many) for n in range(40)]
    section, words = shown(run, rows)
    assert "3 of 40 prompts with a rubric" in words  # full after so many tokens
    assert "3 more criteria" in words
    assert "Not drawn: d." in words
    assert f"… {401 - MOST_TOKENS} tokens more" in words
    assert len(section) < 4_000_000
    short = [line("x", model, id=str(n), r=[("c", model == "sft" or n < 30, [0, 1]), ("d", True, [1, 0])])
             for n in range(40) for model in ("sft", "policy")]  # fmt: skip
    section, words = shown(run, short)
    assert f"{MOST_PROMPTS} of 40 prompts" in words
    assert re.findall("prompt ([0-9]+)", words) == [*map(str, range(30, 40)), "0", "1"]


def test_a_long_answer_is_shown_around_its_first_relevant_token() -> None:
    relevance = [0.4] * 1000
    assert first_drawn(relevance) == 0
    relevance[MOST_TOKENS - 1] = 0.5
    assert first_drawn(relevance) == 0
    relevance[MOST_TOKENS - 1], relevance[990] = 0.0, 0.5
    assert first_drawn(relevance) == 990 - BEFORE
    assert first_drawn([]) == 0


def test_what_is_left_out_before_and_behind_is_counted(run: Path) -> None:
    late = [0.0] * 1000 + [0.9] + [0.0] * 400
    section, words = shown(run, [line("x" * 1400, r=[("c", True, late)])])
    assert f"{1000 - BEFORE} tokens before … " in words
    assert f" … {1401 - 1000 + BEFORE - MOST_TOKENS} tokens more" in words
    assert [title.partition(" of ")[0] for _, title, _ in cases(section)[0][1]][:1] == [f"token {1001 - BEFORE}"]


def test_an_answer_with_text_and_relevance_is_drawn_before_others() -> None:
    rows = [
        line("", r=[("c", False, [1])]), line("q", r=[("c", False, None)]), line("z", "policy", r=[("c", False, [0, 1])]),
    ]  # fmt: skip
    found = criteria_section(map(Answer.model_validate, rows), "sft")
    assert found
    row = found.prompts[0].criteria[0].rows[0]
    kept, broken = row.answers
    assert kept == "No answer keeps it."
    assert isinstance(broken, ShownAnswer)
    assert broken.drawing
    assert broken.title == "policy"
    assert broken.drawing.layers[0].startswith('<i class="t " title="token 1 of 2 · relevance 0">z</i>')


# -- characters and tokens ---------------------------------------------------------------------------------------------


def test_an_emoji_of_several_tokens_is_drawn_once(run: Path) -> None:
    row = {
        "model": "sft", "sample": {"id": "1", "prompt": "p"}, "response": {"text": "a🎉 b", "finished": False}, "tokens": ["a", "\ufffd", "\ufffd", "</s>", " b"],
        "offsets": [[0, 1], [1, 2], [1, 2], [2, 2], [2, 4]],
        "criteria": {"r": [{"text": "c", "kept": False, "relevance": [0, 0.2, 0.8, 0, 0]}]},
    }  # fmt: skip
    section, _ = shown(run, [row])
    assert cases(section)[0][1] == [
        ("", "token 1 of 5 · relevance 0", "a"),
        ("n4 strong", "tokens 2 to 3 of 5 · relevance 0.200 to 0.800", "🎉"),
        ("end", "token 4 of 5 · relevance 0", "&lt;/s&gt;"),
        ("", "token 5 of 5 · relevance 0", " b"),
    ]


def test_characters_that_no_token_covers_are_not_lost() -> None:
    found = pieces(answer("abcdef", ["b", "de"], [(1, 2), (3, 5)]))
    assert [(piece.text, piece.places) for piece in found] == [("a", []), ("b", [0]), ("c", []), ("de", [1]), ("f", [])]


@pytest.mark.parametrize(
    "offsets",
    [[], [(0, 1)], [(0, 1), (0, 9)], [(1, 2), (0, 1)], [(0, 1), (-1, 2)]],
)
def test_offsets_that_do_not_fit_leave_the_tokens_own_text(offsets: Any) -> None:
    assert pieces(answer("ab", ["a?", "b?"], offsets)) == [Piece("a?", [0]), Piece("b?", [1])]


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny_model_dir: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model_dir)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_character_and_every_token_is_drawn_once(data: st.DataObject, tiny_tokenizer: Any) -> None:
    """Random tokens of a byte-level vocabulary, broken characters and special tokens among them."""
    ids = data.draw(st.lists(st.integers(0, len(tiny_tokenizer) - 1), max_size=40))
    text = data.draw(st.text(max_size=12))
    ids += tiny_tokenizer(text, add_special_tokens=False).input_ids
    response = rollouts.decode(tiny_tokenizer, ids)
    offsets = rollouts.offsets(tiny_tokenizer, ids)
    found = pieces(answer(response, [tiny_tokenizer.decode([one]) for one in ids], offsets))
    assert "".join(piece.text for piece in found if not piece.outside) == response
    assert {place for piece in found for place in piece.places} == set(range(len(ids)))
    at = 0
    for piece in found:
        if piece.outside:
            assert offsets[piece.places[0]] == (at, at)
        else:
            end = at + len(piece.text)
            assert piece.places == [i for i, (first, last) in enumerate(offsets) if first <= at and end <= last]
            at = end
