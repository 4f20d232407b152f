"""Improvement chains, written by a scripted model and by rules, through the annotator and through the stage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from critique_answers import PROMPTS, replay, sample, stage_key
from pydantic import ValidationError
from training_helpers import a_run

from fgrl.base.errors import DataError
from fgrl.components.annotators.improvement_chain import ImprovementChain
from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.rewriters.by_model import ModelRewriter
from fgrl.components.rewriters.delete import Delete
from fgrl.components.rewriters.replace import Replace
from fgrl.experiments.stages.annotate import AnnotateStage
from fgrl.feedback.chain_checks import EditLimits
from fgrl.feedback.chains import edits, spans_at
from fgrl.kinds import ChainAttempt, ChainCase, Rewriter
from fgrl.registry import Problems, dump
from fgrl.types import Annotation, Marked, Response, Sample, Samples, Span, read_jsonl, write_jsonl

TEXT = "The mill is very very old. It stands by the sea, and people come to see it."
SPANS = [
    Span(start=40, end=47, label=-1, reasons=["factually_wrong", "other"], note="It is a lake", id="x"),
    Span(start=53, end=74, label=1, reasons=["useful_fact"]),
    Span(start=12, end=25, label=-1, reasons=["too_wordy"]),
    Span(start=0, end=3, label=0),
]
ADA = Annotation(by="ada", spans=SPANS, critique="Fine.", seconds=12.5)
FIRST = "The mill is ancient. It stands by <dislike id='2'>the sea</dislike id='2'>, and <like id='1'>people come to see it</like id='1'>."
SECOND = FIRST.replace("<dislike id='2'>the sea</dislike id='2'>", "the lake")
CHAIN = {"steps": [{"id": 1, "response": FIRST}, {"id": 2, "response": SECOND}]}
TAGGED = (
    "The mill is <dislike id='1'>very very old</dislike id='1'>. It stands by <dislike id='2'>the sea</dislike id='2'>, and "
    "<like id='1'>people come to see it</like id='1'>."
)
TAXONOMY = """
taxonomy:
  likes: {lead: I like this because..., groups: [{title: A, attributes: [{id: useful_fact, text: It states a useful fact.}]}]}
  dislikes:
    lead: I dislike this because...
    groups: [{title: B, attributes: [{id: factually_wrong, text: It is wrong.}, {id: too_wordy, text: It's too wordy.}]}]
"""


def annotated(*annotations: Annotation, **more: Any) -> Sample:
    """A sample with one annotated response, and a second one without annotations."""
    responses = [Response(text=TEXT, by="policy", annotations=list(annotations)), Response(text="Another one.")]
    return sample(**{"responses": responses, "chosen": None, "meta": {"document": "It stands by a lake."}, **more})


def by_model(folder: Path, *lines: dict[str, Any], **options: Any) -> ModelRewriter:
    """A rewriter with the shipped prompt, whose client answers with these lines."""
    name = "improvement_step.txt" if options.get("steps_per_call") == "one" else "improvement_chain.txt"
    name = "improvement_passage.txt" if options.get("writes") == "passage" else name
    return ModelRewriter(client=replay(folder, *lines), prompt=str(PROMPTS / name), **options)


def chains(folder: Path, *lines: dict[str, Any], attempts: int = 1, **options: Any) -> ImprovementChain:
    annotator = ImprovementChain(rewriter=by_model(folder, *lines, **options), attempts=attempts)
    annotator.setup(a_run(folder))
    return annotator


def test_a_chain_has_the_original_its_annotation_and_a_rewrite_per_dislike(tmp_path: Path) -> None:
    annotator = chains(tmp_path, {"any": True, "answer": CHAIN}, by="llama")
    before = annotated(ADA, id="7")
    kept = before.model_copy(deep=True)
    (after,) = annotator.annotate([before])
    assert before == kept
    assert after.id == "7/0/ada"
    assert (after.prompt, after.chosen, after.verdicts) == (before.prompt, 2, None)
    assert [response.text for response in after.responses] == [
        TEXT,
        "The mill is ancient. It stands by the sea, and people come to see it.",
        "The mill is ancient. It stands by the lake, and people come to see it.",
    ]
    assert [response.by for response in after.responses] == ["policy", "llama", "llama"]
    (annotation,) = after.responses[0].annotations
    assert annotation == ADA.model_copy(
        update={
            "spans": [
                span.model_copy(update={"answered_by": step})
                for span, step in zip(SPANS, [2, None, 1, None], strict=True)
            ]
        }
    )
    assert after.meta == {
        "document": "It stands by a lake.",
        "chain": {
            "of": "7", "response": 0, "annotator": "ada", "steps": 2, "rewriter": "llama", "steps_per_call": "all", "attempts": 1,
        },
    }  # fmt: skip
    assert after.responses[1].meta == {
        "step": {
            "span": 2, "start": 12, "end": 25, "new_end": 19,
            "remaining": [{"span": 0, "start": 34, "end": 41}, {"span": 1, "start": 47, "end": 68}],
        }
    }  # fmt: skip
    assert annotator.counts() == {
        "chains": 1, "steps": 2, "checked": 1, "passed": 1, "check pass rate": 1.0, "check pass rate of first attempts": 1.0,
        "failed": 0, "questions": 1, "answered": 1, "responses without an annotation": 1,
    }  # fmt: skip
    assert annotator.failed() == []


def test_where_spans_are_in_later_steps_and_what_changed(tmp_path: Path) -> None:
    (after,) = chains(tmp_path, {"any": True, "answer": CHAIN}).annotate([annotated(ADA)])
    marked = [
        [(place, after.responses[step].text[span.start : span.end]) for place, span in spans_at(after, step)]
        for step in range(3)
    ]
    assert marked == [
        [(0, "the sea"), (1, "people come to see it"), (2, "very very old")],
        [(0, "the sea"), (1, "people come to see it")],
        [(1, "people come to see it")],
    ]
    assert [
        (before.text[edit.start : edit.end], rewrite.text[edit.start : edit.new_end])
        for before, rewrite, edit in edits(after)
    ] == [("very very old", "ancient"), ("the sea", "the lake")]
    with pytest.raises(DataError, match="is not a chain"):
        spans_at(annotated(ADA), 0)


def test_the_key_covers_every_file_that_the_taxonomy_extends(tmp_path: Path) -> None:
    top, middle, base = (tmp_path / f"{name}.yaml" for name in ("top", "middle", "base"))
    base.write_text(TAXONOMY)
    middle.write_text("extends: base.yaml")
    top.write_text("extends: middle.yaml")

    def key(taxonomy: Path | None) -> Any:
        own = ImprovementChain(rewriter=by_model(tmp_path), taxonomy=None if taxonomy is None else str(taxonomy))
        return dump(own, for_key=True)

    before = key(top)
    assert key(top) == before
    base.write_text(TAXONOMY.replace("It is wrong.", "It is false."))
    after = key(top)
    assert after != before
    assert {name: value for name, value in after.items() if name != "behind"} == {
        name: value for name, value in before.items() if name != "behind"
    }
    middle.write_text("extends: base.yaml\ntitle: Another title")
    assert key(top) not in (before, after)
    assert "behind" not in key(base) | key(None)
    base.write_text("extends: top.yaml")
    with pytest.raises(Problems, match="extends itself"):
        key(top)


def test_the_model_sees_query_document_tags_and_reasons(tmp_path: Path) -> None:
    (tmp_path / "page.yaml").write_text(TAXONOMY)
    rewriter = by_model(tmp_path, {"any": True, "answer": CHAIN})
    annotator = ImprovementChain(rewriter=rewriter, taxonomy=str(tmp_path / "page.yaml"))
    (request,) = annotator.asks(
        [annotated(ADA, prompt="The whole prompt.", meta={"question": "Which mill?", "document": "D!"})]
    )
    system, user = (message.content for message in request.messages)
    assert "There are 2 dislikes, so there are 2 steps." in system
    assert "<dislike id='1'>...</dislike id='1'>" in system
    assert user == (
        f"## User Query\nWhich mill?\n\n## Knowledge Source\nD!\n\n## Generated Response with User Feedback Highlights\n{TAGGED}\n\n"
        "## User Feedback Highlight Reasons\n"
        '{"tag": "dislike", "id": 1, "explanation": "I dislike this because it\'s too wordy."}\n'
        '{"tag": "dislike", "id": 2, "explanation": "I dislike this because it is wrong. It is a lake."}\n'
        '{"tag": "like", "id": 1, "explanation": "I like this because it states a useful fact."}'
    )
    assert request.json_schema is not None
    assert request.json_schema["properties"]["steps"]["minItems"] == 2


def test_a_response_with_tags_of_its_own_keeps_them(tmp_path: Path) -> None:
    text = "Write <dislike id='1'>very</dislike id='1'> little."
    source = Annotation(by="ada", spans=[Span(start=text.index("little"), end=len(text) - 1, label=-1)])
    answer = {"steps": [text.replace("little", "much")]}
    annotator = chains(tmp_path, {"any": True, "answer": answer})
    given = sample(responses=[Response(text=text, annotations=[source])], chosen=None)
    (request,) = annotator.asks([given])
    assert text.replace("little", "<dislike2 id='1'>little</dislike2 id='1'>") in request.messages[1].content
    (after,) = annotator.annotate([given])
    assert after.responses[1].text == text.replace("little", "much")


def test_a_failed_chain_is_written_anew_as_a_whole_with_another_sample_number(tmp_path: Path) -> None:
    wrong = {"steps": [FIRST, SECOND.replace("The mill", "A mill")]}
    answers = [json.dumps(wrong), "no steps", json.dumps(CHAIN)]
    annotator = chains(tmp_path, {"any": True, "answers": answers}, attempts=3)
    (after,) = annotator.annotate([annotated(ADA)])
    assert after.meta["chain"]["attempts"] == 3
    assert after.meta["chain"]["refused"] == ["several edits", "steps that cannot be read"]
    counts = annotator.counts()
    assert (counts["chains"], counts["checked"], counts["passed"], counts["failed"]) == (1, 3, 1, 0)
    assert (counts["check pass rate"], counts["check pass rate of first attempts"]) == (0.3333, 0.0)
    assert (counts["refused: several edits"], counts["refused: steps that cannot be read"]) == (1, 1)
    assert (counts["questions"], counts["answered"]) == (1, 1)


@pytest.mark.parametrize(
    ("line", "problem", "attempts"),
    [
        ({"answer": "I'm sorry, I cannot do that."}, "declined", 2),
        ({"answer": {"steps": [FIRST]}}, "steps that cannot be read", 2),
        ({"answer": {"steps": [FIRST.replace("id='2'", "id='two'"), SECOND]}}, "tags that cannot be read", 2),
        ({"answer": {"steps": [SECOND, SECOND]}}, "several passages untagged", 2),
        ({"answer": {"steps": [FIRST, FIRST]}}, "addressed passage still tagged", 2),
        ({"answer": CHAIN, "finish": "length"}, "cut off", 2),
        ({"error": "nobody is there"}, "no answer", 1),
    ],
)
def test_a_chain_that_cannot_be_written_is_missing_counted_and_kept_apart(
    tmp_path: Path, line: dict[str, Any], problem: str, attempts: int
) -> None:
    annotator = chains(tmp_path, {"any": True, **line}, attempts=2)
    assert annotator.annotate([annotated(ADA)]) == []
    (failed,) = annotator.failed()
    record = failed.meta["chain"]
    assert (record["failed"], record["attempts"], len(record["refused"])) == (problem, attempts, attempts)
    if "answer" in line:
        text = line["answer"] if isinstance(line["answer"], str) else json.dumps(line["answer"])
        assert json.loads(json.dumps(record["refused"][0]["answer"])) == text
    assert failed.responses == [annotated(ADA).responses[0]]
    counts = annotator.counts()
    assert counts[f"failed: {problem}"] == counts["failed"] == 1
    assert (counts["questions"], counts["answered"]) == (1, 0)
    assert counts["check pass rate"] == (None if problem == "no answer" else 0.0)


def test_one_step_per_call_asks_about_the_text_of_the_step_before(tmp_path: Path) -> None:
    lines = (
        {"contains": [TAGGED, "dislike with id 1"], "answers": [FIRST, FIRST]},
        {"contains": [FIRST, "dislike with id 2"], "answers": ["Something else.", SECOND]},
    )
    annotator = chains(tmp_path, *lines, attempts=2, steps_per_call="one")
    assert [request.sample for request in annotator.asks([annotated(ADA)])] == [0, 0]
    (after,) = annotator.annotate([annotated(ADA)])
    assert [response.text for response in after.responses][1:] == [
        "The mill is ancient. It stands by the sea, and people come to see it.",
        "The mill is ancient. It stands by the lake, and people come to see it.",
    ]
    assert (after.meta["chain"]["steps_per_call"], after.meta["chain"]["attempts"]) == ("one", 2)
    assert annotator.counts()["checked"] == 2


def test_a_model_may_write_the_passage_alone(tmp_path: Path) -> None:
    lines = (
        {"contains": ["response:\nvery very old\n", "The reason: too_wordy."], "answer": '"ancient"'},
        {"contains": ["response:\nthe sea\n", "The mill is ancient."], "answers": ["the sea", "the lake"]},
    )
    options: dict[str, Any] = {"steps_per_call": "one", "writes": "passage"}
    annotator = chains(tmp_path, *lines, attempts=2, **options)
    (after,) = annotator.annotate([annotated(ADA)])
    assert after.responses[2].text == "The mill is ancient. It stands by the lake, and people come to see it."
    assert (after.meta["chain"]["writes"], after.meta["chain"]["refused"]) == ("passage", ["unchanged"])
    assert len(annotator.asks([annotated(ADA)])) == 2
    with pytest.raises(ValidationError, match="steps_per_call: one"):
        chains(tmp_path, writes="passage")
    (tmp_path / "p.txt").write_text("{response} {reasons}")
    with pytest.raises(DataError, match=r"lacks the placeholder \{passage\}"):
        ModelRewriter(client=replay(tmp_path), prompt=str(tmp_path / "p.txt"), **options).template()


def test_a_response_may_apologise_and_a_refusal_is_counted_as_one(tmp_path: Path) -> None:
    text = "The mill is closed. We are open again in May."
    closed = Annotation(by="ada", spans=[Span(start=0, end=19, label=-1, reasons=["rude"])])
    asked = sample(responses=[Response(text=text, by="policy", annotations=[closed])], chosen=None)

    def rewritten(answer: str) -> tuple[list[Sample], dict[str, Any]]:
        folder = tmp_path / str(len(answer))
        folder.mkdir()
        annotator = chains(folder, {"contains": ["closed"], "answer": answer}, steps_per_call="one")
        return annotator.annotate([asked]), annotator.counts()

    (chain,), _ = rewritten("I'm sorry, the mill is closed. We are open again in May.")
    assert chain.responses[1].text == "I'm sorry, the mill is closed. We are open again in May."
    assert rewritten("I'm sorry, I can't help with that.")[1]["refused: declined"] == 1


def test_a_passage_without_words_is_not_asked_about(tmp_path: Path) -> None:
    blank = Annotation(by="ada", spans=[Span(start=3, end=4, label=-1, reasons=["spacing"])])
    asked = sample(responses=[Response(text="The mill is closed.", annotations=[blank])], chosen=None)
    annotator = chains(tmp_path, steps_per_call="one", writes="passage")
    assert annotator.annotate([asked]) == []
    assert annotator.counts()["failed: no words in the passage"] == 1


def test_with_more_tries_the_model_is_told_what_is_wrong(tmp_path: Path) -> None:
    lines = (
        {"contains": "step 2: it should untag dislike 2", "answer": CHAIN},
        {"contains": "step 2: dislike 2 still has its tags", "answer": CHAIN},
        {"any": True, "answer": {"steps": [FIRST, FIRST]}},
    )
    annotator = chains(tmp_path, *lines, tries=2)
    (after,) = annotator.annotate([annotated(ADA)])
    assert after.meta["chain"]["attempts"] == 1


BO = Annotation(by="bo", spans=[Span(start=12, end=25, label=-1)])
FINE = Annotation(by="cy", spans=[Span(start=0, end=3, label=1)])


def test_one_annotation_of_a_response_becomes_a_chain_whatever_their_order() -> None:
    annotator = ImprovementChain(rewriter=Delete())
    (one,) = annotator.annotate([annotated(ADA, BO, FINE)])
    assert annotator.counts()["further annotations of a response"] == 1
    assert annotator.annotate([annotated(FINE, BO, ADA)]) == [one]
    many = annotator.annotate([annotated(ADA, BO, FINE, id=str(number)) for number in range(40)])
    used = [chain.meta["chain"]["annotator"] for chain in many]
    assert len(used) == 40
    assert set(used) == {"ada", "bo"}


def test_annotations_of_several_people_are_a_chain_each(tmp_path: Path) -> None:
    bo, fine = BO, FINE
    annotator = ImprovementChain(rewriter=Delete(), several="each")
    samples = annotator.annotate([annotated(ADA, bo, fine)])
    assert [(one.id, len(one.responses)) for one in samples] == [("s/0/ada", 3), ("s/0/bo", 2)]
    assert [one.responses[0].annotations[0].by for one in samples] == ["ada", "bo"]
    assert all(len(one.responses[0].annotations) == 1 for one in samples)
    counts = annotator.counts()
    assert (counts["annotations without a disliked passage"], counts["responses without an annotation"]) == (1, 1)
    assert "questions" not in counts
    only = ImprovementChain(rewriter=Delete(), annotators=["bo"])
    assert [one.id for one in only.annotate([annotated(ADA, bo, fine)])] == ["s/0/bo"]


def test_deleting_takes_the_spare_space_along() -> None:
    (after,) = ImprovementChain(rewriter=Delete(by="shears")).annotate([annotated(ADA)])
    assert [response.text for response in after.responses] == [
        TEXT,
        "The mill is. It stands by the sea, and people come to see it.",
        "The mill is. It stands by, and people come to see it.",
    ]
    assert after.responses[1].by == "shears"
    assert after.meta["chain"]["steps_per_call"] == "one"
    whole = Delete(unit="sentence")
    (shorter,) = ImprovementChain(rewriter=whole, limits=EditLimits(max_change=0.9)).annotate(
        [annotated(Annotation(by="ada", spans=SPANS[2:3]))]
    )
    assert shorter.responses[1].text == "It stands by the sea, and people come to see it."


def test_a_rule_that_does_not_apply_leaves_no_chain() -> None:
    twice = Annotation(by="ada", spans=[SPANS[2], Span(start=17, end=20, label=-1)])
    annotator = ImprovementChain(rewriter=Delete(), attempts=5)
    assert annotator.annotate([annotated(twice)]) == []
    (failed,) = annotator.failed()
    assert failed.meta["chain"]["failed"] == "no rule applies"
    assert failed.meta["chain"]["attempts"] == 1  # another attempt would give the same
    assert "step 2: nothing is left of the passage" in failed.meta["chain"]["refused"][0]["detail"]
    everything = Annotation(by="ada", spans=[Span(start=0, end=len(TEXT), label=-1)])
    assert annotator.annotate([annotated(everything)]) == []
    assert annotator.counts()["failed: no rule applies"] == 1


def test_passages_are_replaced_by_the_text_for_their_reason() -> None:
    rewriter = Replace(texts={"factually_wrong": "the lake", "too_wordy": "old"})
    (after,) = ImprovementChain(rewriter=rewriter).annotate([annotated(ADA)])
    assert after.responses[2].text == "The mill is old. It stands by the lake, and people come to see it."
    assert ImprovementChain(rewriter=Replace(texts={"too_wordy": "old"})).annotate([annotated(ADA)]) == []
    kept = Replace(otherwise="[{passage}]")
    (marked,) = ImprovementChain(rewriter=kept).annotate([annotated(ADA)])
    assert "is [very very old]. It stands by [the sea]," in marked.responses[2].text


class Echo(Delete):
    """Changes nothing; a rewriter of a user's own."""

    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        return span.start, span.end, text[span.start : span.end]


def test_a_rewrite_that_changes_nothing_is_refused() -> None:
    annotator = ImprovementChain(rewriter=Echo(by="echo"))
    assert annotator.annotate([annotated(ADA)]) == []
    assert annotator.counts()["failed: unchanged"] == 1


class Careless(Rewriter):
    """Checks nothing, and writes what it was given."""

    texts: list[str]
    """The texts of the steps, without any highlights."""

    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        return [ChainAttempt([Marked.of(text, []) for text in self.texts]) for _ in cases]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [(["A mill."], "wrong number of steps"), ([], "wrong number of steps"), (["A", "B"], "several passages untagged")],
)
def test_what_a_rewriter_of_the_users_own_gives_is_checked_as_well(texts: list[str], problem: str) -> None:
    annotator = ImprovementChain(rewriter=Careless(by="me", texts=texts), attempts=2)
    assert annotator.annotate([annotated(ADA)]) == []
    assert (annotator.counts()["checked"], annotator.counts()[f"failed: {problem}"]) == (2, 1)


def stage(folder: Path, rewriter: Any, samples: list[Sample], **options: Any) -> AnnotateStage:
    write_jsonl(folder / "data.jsonl", samples)
    return AnnotateStage(
        data=JsonLines(path=str(folder / "data.jsonl")),
        annotator=ImprovementChain(rewriter=rewriter, attempts=1),
        **options,
    )


def test_the_stage_writes_chains_and_keeps_failed_ones_beside_them(tmp_path: Path) -> None:
    rewriter = by_model(tmp_path, {"contains": "good?", "answer": CHAIN}, {"any": True, "answer": "?"})
    samples = [annotated(ADA, id=name, prompt=f"{name}?") for name in ("good", "bad")]
    run = a_run(tmp_path / "run")
    summary = stage(tmp_path, rewriter, samples, max_missing=0.5).run(run)
    assert (summary["samples"], summary["chains"], summary["check pass rate"], summary["failed"]) == (1, 1, 0.5, 1)
    assert [one.id for one in Samples(run.out).read()] == ["good/0/ada"]
    (failed,) = read_jsonl(run.out / "failed.jsonl", Sample)
    assert (failed.id, failed.meta["chain"]["refused"][0]["answer"]) == ("bad/0/ada", "?")
    with pytest.raises(DataError, match="1 of 2 questions got no answer that can be used"):
        stage(tmp_path, rewriter, samples).run(a_run(tmp_path / "other"))


def test_chains_that_a_rule_cannot_write_count_as_missing_too(tmp_path: Path) -> None:
    whole = Annotation(by="ada", spans=[Span(start=0, end=len(TEXT), label=-1)])
    samples = [annotated(ADA, id="good"), annotated(whole, id="bad")]
    with pytest.raises(DataError, match=r"1 of 2 cases failed.*Change the rule"):
        stage(tmp_path, Delete(), samples, max_missing=0.4).run(a_run(tmp_path / "run"))
    assert stage(tmp_path, Delete(), samples, max_missing=0.5).run(a_run(tmp_path / "other"))["samples"] == 1


def test_the_prompts_that_ship_can_be_filled_in_and_count_in_the_key(tmp_path: Path) -> None:
    for name, fields in (("all", {"count"}), ("one", {"id"})):
        rewriter = by_model(tmp_path, {"any": True, "answer": "x"}, steps_per_call=name)
        assert rewriter.template().fields == {"query", "document", "response", "reasons", "like", "dislike"} | fields
    short = PROMPTS / "improvement_passage_short.txt"
    few = ModelRewriter(client=replay(tmp_path), prompt=str(short), steps_per_call="one", writes="passage")
    (request, _second) = ImprovementChain(rewriter=few).asks([annotated(ADA)])
    assert [turn.role for turn in request.messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert request.messages[-1].content == "Source: It stands by a lake.\nPhrase: very very old\nProblem: too_wordy."
    keys = {
        stage_key(tmp_path, ImprovementChain(rewriter=rewriter))
        for rewriter in (Delete(), Delete(unit="sentence"), Replace(otherwise=""), rewriter)
    }
    assert len(keys) == 4
