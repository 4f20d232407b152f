"""Labels from a model that quotes: how answers are read, where quotes end up, and what is counted. Answers come from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quote_texts import texts

from fgrl.base.errors import DataError, Stopped
from fgrl.components.annotators.mark_by_llm import MarkByLLM
from fgrl.components.clients.replay import Replay
from fgrl.kinds import Annotator, Client
from fgrl.registry import build
from fgrl.types import Completion, Criterion, Message, Response, Sample

PROMPTS = Path(__file__).resolve().parents[3] / "prompts"
PROMPT = "C <{criterion}>\nR <{response}>\n"
TEXT = "The mill stands “by the sea”; the sea\r\nis brown."
SEA = Criterion(text="sea?", check={"name": "keywords:forbidden_words", "forbidden_words": ["sea"]})
KIND = Criterion(text="kind?")


def one(*rubric: Criterion, text: str = TEXT, **more) -> Sample:
    known = {"id": "s", "prompt": "Write.", "responses": [Response(text=text)], "chosen": 0, "rubric": list(rubric)}
    return Sample(**{**known, **more})


def marker(folder: Path, *lines: dict, prompt: str = PROMPT, **options) -> MarkByLLM:
    (folder / "mark.txt").write_text(prompt)
    (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return MarkByLLM(client=Replay(answers=str(folder / "answers.jsonl")), prompt=str(folder / "mark.txt"), **options)


def part(*quotes: str) -> dict:
    return {"type": "partial_relevant", "relevant_texts": list(quotes)}


def stretches(sample: Sample) -> list[str]:
    return [sample.chosen_response.text[span.start : span.end] for span in sample.chosen_response.spans]


class Noting(Client):
    """Gives the same answer to everything."""

    answer: str
    asked: list = []

    def complete(self, requests):
        self.asked = [*self.asked, *requests]
        return [Completion(text=self.answer, finish="stop") for _ in requests]


def test_quotes_become_spans_with_their_kind_and_score(tmp_path):
    annotator = marker(
        tmp_path,
        {"contains": "<sea?>", "answer": part("sea", 'stands "by the sea"', "the sea is brwon", "the land")},
        {"contains": "<kind?>", "answer": {"type": "all_irrelevant"}},
        {"contains": "<whole?>", "answer": {"type": "all_relevant", "relevant_texts": []}},
    )
    given = one(SEA, KIND, Criterion(text="whole?"), meta={"topic": 1})
    sea, kind, whole = annotator.annotate([given])
    assert stretches(sea) == ["stands “by the sea”", "sea", "the sea\r\nis brown"]
    assert sea.meta == {
        "topic": 1, "kept": False, "scope": "negative", "relevant": "part", "group": "keywords:forbidden_words",
        "matches": [
            {"quote": "sea", "kind": "exact", "score": 1.0, "start": 24, "end": 27},
            {"quote": 'stands "by the sea"', "kind": "normalised", "score": 1.0, "start": 9, "end": 28},
            {"quote": "the sea is brwon", "kind": "fuzzy", "score": 0.9375, "start": 30, "end": 47},
            {"quote": "the land", "kind": None},
        ],
    }  # fmt: skip
    assert (kind.chosen_response.spans, kind.meta["relevant"], kind.meta["matches"]) == ([], "none", [])
    assert (stretches(whole), whole.meta["relevant"]) == ([TEXT], "all")
    unknown = {"kept": None, "scope": None, "group": None}
    assert {name: kind.meta[name] for name in unknown} == unknown
    assert [sample.id for sample in (sea, kind, whole)] == ["s/response/0", "s/response/1", "s/response/2"]
    assert [sample.rubric for sample in (sea, kind)] == [[SEA], [KIND]]
    assert all(span.label == 1 for sample in (sea, kind, whole) for span in sample.chosen_response.spans)
    assert (given.meta, given.responses) == ({"topic": 1}, [Response(text=TEXT)]), "what was given is not changed"
    assert annotator.counts() == {
        "labels": 3, "relevant: all": 1, "relevant: part": 1, "relevant: none": 1,
        "quotes": 4, "quotes: exact": 1, "quotes: normalised": 1, "quotes: fuzzy": 1, "lowest score": 0.9375,
        "unmatched quotes": 1, "unmatched rate": 0.25,
        "questions": 3, "answered": 3, "cached": 0, "asked again": 0, "repaired": 0, "failed": 0,
    }  # fmt: skip


def test_an_answer_without_a_quote_that_is_found_is_asked_for_again_and_never_taken_for_nothing_relevant(tmp_path):
    lines = [
        {"contains": ["<sea?>", "'the ocean' for one"], "answer": part("by the sea")},
        {"any": True, "answer": part("the ocean", "a lake")},
    ]
    annotator = marker(tmp_path, *lines)
    (found,) = annotator.annotate([one(SEA, KIND)])
    assert (found.rubric, stretches(found)) == ([SEA], ["by the sea"])
    counts = annotator.counts()
    assert (counts["asked again"], counts["failed: unreadable"], counts["answered"]) == (2, 1, 1)
    assert (counts["quotes"], counts["unmatched quotes"]) == (3, 2), "of the last answer to each question"
    assert marker(tmp_path, *lines, tries=1).annotate([one(SEA)]) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"type": "partial_relevant", "relevant_texts": []}, "relevant_texts has passages for partial_relevant"),
        ({"type": "all_irrelevant", "relevant_texts": ["sea"]}, "relevant_texts has passages for partial_relevant"),
        ({"type": "relevant"}, "type: Input should be"),
        ({"type": "all_relevant", "why": "so"}, "why: Extra inputs"),
        ("the sea", "there is no JSON in it"),
    ],
)
def test_an_answer_of_another_form_is_told_what_is_wrong(tmp_path, answer, reason):
    annotator = marker(tmp_path, {"contains": reason, "answer": part("sea")}, {"any": True, "answer": answer})
    assert [stretches(sample) for sample in annotator.annotate([one(SEA)])] == [["sea"]]
    assert annotator.counts()["asked again"] == 1


def test_mended_json_refusals_and_errors_are_counted_apart(tmp_path):
    annotator = marker(
        tmp_path,
        {"contains": "<mended>", "answer": "```json\n{'type': 'partial_relevant', 'relevant_texts': ['sea',]}\n```"},
        {"contains": "<refused>", "answer": "I'm sorry, but I can't mark that."},
        {"contains": "<error>", "error": "503"},
        {"contains": "<cut>", "answer": part("sea"), "finish": "length"},
    )
    found = annotator.annotate([one(*(Criterion(text=name) for name in ("mended", "refused", "error", "cut")))])
    assert [sample.rubric[0].text for sample in found] == ["mended"]
    counts = annotator.counts()
    assert {name: counts[name] for name in counts if name.startswith("failed") or name == "repaired"} == {
        "repaired": 1, "failed": 3, "failed: error": 1, "failed: refused": 1, "failed: truncated": 1,
    }  # fmt: skip


def test_options_say_where_quotes_are_looked_for(tmp_path):
    line = {"any": True, "answer": part("sea")}
    assert len(marker(tmp_path, line, occurrence="all").annotate([one(SEA)])[0].chosen_response.spans) == 2
    twice = {"any": True, "answer": part("sea", "sea")}
    assert len(marker(tmp_path, twice).annotate([one(SEA)])[0].chosen_response.spans) == 2, (
        "a quote that is given twice has two places"
    )
    lower = {"any": True, "answer": part("THE MILL stands")}
    assert marker(tmp_path, lower).annotate([one(SEA)]) == []
    assert stretches(marker(tmp_path, lower, ignore_case=True).annotate([one(SEA)])[0]) == ["The mill stands"]
    misspelt = {"any": True, "answer": part("The mil stands")}
    assert marker(tmp_path, misspelt, fuzzy=None).annotate([one(SEA)]) == []
    judged = marker(tmp_path, line, criteria="judged")
    assert [sample.rubric for sample in judged.annotate([one(SEA, KIND)])] == [[KIND]]
    assert judged.counts()["checked by a rule"] == 1
    whole = {"any": True, "answer": {"type": "all_relevant"}}
    thinned = marker(tmp_path, whole, {"any": True, "answer": {}}, max_all=0.0)
    assert thinned.annotate([one(SEA)]) == []
    assert thinned.counts()["left out by max_all"] == 1


def test_the_alarm_rings_or_stops(tmp_path):
    said: list[str] = []

    class Run:
        out = dir = tmp_path
        say = staticmethod(said.append)

    line = {"any": True, "answer": part("sea", "the ocean")}
    for options in ({"max_unmatched": 0.5}, {}):
        annotator = marker(tmp_path, line, **options)
        annotator.setup(Run())
        assert len(annotator.annotate([one(SEA)])) == 1
    assert len(said) == 1
    assert said[0].startswith("alarm: 1 of 2 quotes (50.0%) were not found in their texts, more than 2.5%")
    with pytest.raises(Stopped, match="stopped by `max_unmatched`"):
        marker(tmp_path, line, alarm="stop").annotate([one(SEA)])


def test_what_is_asked(tmp_path):
    turns = [Message(role="system", content="Be brief."), Message(role="user", content="Write {response}.")]
    sample = one(SEA, prompt=turns, responses=[Response(text=text) for text in (TEXT, "a {criterion}", "")])
    annotator = marker(tmp_path, prompt="{prompt}|{criterion}|{response}")
    asked = [request.messages[0].content for request in annotator.asks([sample])]
    before = "[system]\nBe brief.\n\n[user]\nWrite {response}.|sea?|"
    assert asked == [before + TEXT, before + "a {criterion}"], "braces in the data stay as they are"
    schema = annotator.asks([sample])[0].json_schema
    assert schema["properties"]["type"]["enum"] == ["all_relevant", "partial_relevant", "all_irrelevant"]
    assert schema["required"] == ["type", "relevant_texts"]
    assert schema["additionalProperties"] is False
    with pytest.raises(DataError, match=r"lacks the placeholder \{response\}"):
        marker(tmp_path, prompt="{criterion}").asks([sample])


@pytest.mark.parametrize("name", ["mark_taxonomy.txt", "mark_greedy.txt"])
def test_shipped_prompts_and_the_recipe_keys(name):
    client = {"name": "replay", "answers": str(Path(__file__))}  # any file
    annotator = build(Annotator, {"name": "mark_by_llm", "client": client, "prompt": str(PROMPTS / name)})
    (request,) = annotator.asks([one(SEA)])
    assert [message.role for message in request.messages] == ["system", "user"]
    user = request.messages[1].content
    assert f"<criterion>\nsea?\n</criterion>\n\nThe response:\n<response>\n{TEXT}\n</response>" in user
    assert all(f'"type": "{kind}"' in user for kind in ("all_relevant", "partial_relevant", "all_irrelevant"))


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=texts.filter(bool), quotes=st.lists(texts, min_size=1, max_size=4))
def test_no_quote_is_lost_in_silence(text, quotes):
    client = Noting(answer=json.dumps(part(*quotes)))
    annotator = MarkByLLM(client=client, prompt=str(PROMPTS / "mark_taxonomy.txt"))
    found = annotator.annotate([one(SEA, text=text)])
    assert client.asked[: len(annotator.asks([one(SEA, text=text)]))] == annotator.asks([one(SEA, text=text)])
    counts = annotator.counts()
    assert counts["quotes"] == len(quotes)
    if not found:
        assert (counts["unmatched quotes"], counts["failed: unreadable"]) == (len(quotes), 1)
        return
    entries = found[0].meta["matches"]
    assert [entry["quote"] for entry in entries] == quotes
    assert counts["unmatched quotes"] == sum(entry["kind"] is None for entry in entries) < len(quotes)
    places = {(entry["start"], entry["end"]) for entry in entries if entry["kind"]}
    assert [(span.start, span.end) for span in found[0].chosen_response.spans] == sorted(places)
    assert all(0 <= start < end <= len(text) for start, end in places)
