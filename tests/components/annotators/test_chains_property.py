"""Chains of random texts and spans: a rewriter that makes one edit a step always gets its chain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from chain_texts import texts
from critique_answers import PROMPTS
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.components.annotators.improvement_chain import ImprovementChain
from fgrl.components.rewriters.by_model import ModelRewriter
from fgrl.feedback.chain_checks import EditLimits, replaced
from fgrl.feedback.chain_tags import read_tags, tag_names, write_tags
from fgrl.feedback.chains import edits, highlights, spans_at
from fgrl.kinds import Client
from fgrl.types import Annotation, Completion, Marked, Request, Response, Sample, Span

DOCUMENT = "A document with <dislike id='9'>tags</dislike id='9'>."


class Scripted(Client):
    """Replaces each disliked passage by the next of `texts`, in the text that it is shown."""

    texts: list[str]
    """The new texts, by step."""
    original: str
    """The response, without tags."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return [Completion(text=self._answer(request), finish="stop") for request in requests]

    def _answer(self, request: Request) -> str:
        user = request.messages[-1].content
        shown = user.partition("User Feedback Highlights\n")[2].rpartition("\n\n## User Feedback Highlight Reasons")[0]
        names = tag_names("P", DOCUMENT, self.original)
        current = read_tags(shown, names)
        numbers = [one.number for one in current.highlights if one.feeling == "dislike"]
        steps = []
        for number in numbers:
            place = current.disliked(number)
            current = replaced(current, number, place.start, place.end, self.texts[number - 1])
            steps.append(write_tags(current, names))
        return json.dumps({"steps": steps}) if request.json_schema else steps[0]


@st.composite
def annotated(draw: st.DrawFn) -> tuple[str, Annotation, list[str]]:
    """A response, spans that nest, cross and touch, and a new text for each disliked one."""
    text = "x" + draw(texts) + "y"  # answers lose white space at their ends
    place = st.integers(0, len(text))
    ranges = draw(st.lists(st.tuples(place, place), min_size=1, max_size=5))
    spans = [
        Span(
            start=min(pair),
            end=max(pair),
            label=draw(st.sampled_from([-1.0, -1.0, 1.0, 0.0])),
            note=draw(texts) or None,
        )
        for pair in ranges
    ]
    plain = texts.map(lambda drawn: drawn.replace("<", "["))  # a new tag in a step is a mistake
    return text, Annotation(by="ada", spans=spans), [f"({draw(plain)}{number})" for number in range(len(spans))]


def usable(text: str, annotation: Annotation, new: list[str]) -> bool:
    """Does every step change the text, and leave no white space at its ends?"""
    current = Marked.of(text, highlights(annotation).values())
    for number in sorted(one.number for one in current.highlights if one.feeling == "dislike"):
        place = current.disliked(number)
        after = replaced(current, number, place.start, place.end, new[number - 1])
        if after.text in (current.text, "") or after.text != after.text.strip():
            return False
        current = after
    return any(span.label < 0 for span in annotation.spans)


@settings(max_examples=40)
@given(annotated().filter(lambda drawn: usable(*drawn)), st.sampled_from(["all", "one"]))
def test_a_correct_chain_always_passes(drawn: tuple[str, Annotation, list[str]], calls: Literal["all", "one"]) -> None:
    text, annotation, new = drawn
    sample = Sample(
        id="s", prompt="P", responses=[Response(text=text, annotations=[annotation])], meta={"document": DOCUMENT}
    )
    prompt = PROMPTS / ("improvement_chain.txt" if calls == "all" else "improvement_step.txt")
    client = Scripted(texts=new, original=text)
    rewriter = ModelRewriter(client=client, prompt=str(prompt), steps_per_call=calls)
    annotator = ImprovementChain(rewriter=rewriter, attempts=1, limits=EditLimits(max_change=1.0))
    made = annotator.annotate([sample])
    assert made, annotator.failed()
    check_record(made[0], text, annotation, new)


def check_record(chain: Sample, text: str, annotation: Annotation, new: list[str]) -> None:
    """What a chain's record has to be, whatever the texts."""
    dislikes = [place for place, span in enumerate(annotation.spans) if span.label < 0]
    stored = chain.responses[0].annotations[0].spans
    assert chain.responses[0].text == text
    assert len(chain.responses) == len(dislikes) + 1 == (chain.chosen or 0) + 1
    assert sorted(stored[place].answered_by or 0 for place in dislikes) == list(range(1, len(dislikes) + 1))
    left_to_right = sorted(dislikes, key=lambda place: stored[place].answered_by or 0)
    starts = [(stored[place].start, stored[place].end) for place in left_to_right]
    assert starts == sorted(starts)
    for step, (before, after, edit) in enumerate(edits(chain), start=1):
        assert before.text[: edit.start] == after.text[: edit.start]
        assert before.text[edit.end :] == after.text[edit.new_end :]
        assert new[step - 1] in after.text
        assert after.meta["step"]["span"] == left_to_right[step - 1]
        remaining = {place for place, _span in spans_at(chain, step)}
        assert remaining == {
            place for place, span in enumerate(stored) if span.label and (span.answered_by or 99) > step
        }
        for place, span in spans_at(chain, step - 1):
            outside = edit.start < edit.end and (span.end <= edit.start or span.start >= edit.end)
            if place in remaining and outside and span.start < span.end:
                moved: Any = dict(spans_at(chain, step))[place]
                assert after.text[moved.start : moved.end] == before.text[span.start : span.end]
