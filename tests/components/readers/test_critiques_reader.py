"""Annotated samples as examples for a critic: its prompt as it will be asked, and the JSON that it should write."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.base.errors import DataError
from fgrl.components.readers.critiques import Critiques
from fgrl.feedback.critic import Critic
from fgrl.kinds import Client, Reader
from fgrl.rollouts.encoding import target
from fgrl.types import Annotation, Message, Response, Sample, Span

ANSWER = "Paris is on the Seine."
GOOD = Span(start=0, end=5)
POOR = Span(start=9, end=21, label=-1.0)


class Given(Reader):
    samples: list[Any]

    def read(self) -> Any:
        return iter(self.samples)


class Silent(Client):
    def complete(self, requests: Any) -> Any:
        raise AssertionError("nothing should be asked")


def sample(*annotations: Annotation, name: str = "a", **more: Any) -> Sample:
    return Sample(id=name, prompt="Where?", responses=[Response(text=ANSWER, annotations=list(annotations))], **more)


def reader(folder: Path, *samples: Sample, prompt: str = "Q: {prompt}\nA: {response}", **settings: Any) -> Critiques:
    (folder / "prompt.txt").write_text(prompt)
    made = Critiques(data=Given(samples=list(samples)), prompt=str(folder / "prompt.txt"), **settings)
    made.setup(SimpleNamespace())
    return made


def test_each_annotation_is_an_example_also_one_without_spans(tmp_path: Path) -> None:
    first = Annotation(by="gpt", critique="Half right.", spans=[POOR, GOOD])
    examples = list(reader(tmp_path, sample(first, Annotation(by="ann", critique="No.")), sample(name="none")).read())
    assert [example.id for example in examples] == ["a/0/0", "a/0/1"]
    assert examples[0].prompt == f"Q: Where?\nA: {ANSWER}"
    assert json.loads(target(examples[0])) == {
        "textual_feedback": "Half right.", "good_spans": ["Paris"], "poor_spans": ["on the Seine"],
    }  # fmt: skip
    assert json.loads(target(examples[1])) == {"textual_feedback": "No.", "good_spans": [], "poor_spans": []}


def test_one_annotator_is_chosen_by_name_and_rows_as_everywhere(tmp_path: Path) -> None:
    samples = [sample(*(Annotation(by=by, critique=by) for by in ("gpt", "ann")), name=name) for name in "abc"]
    chosen = reader(tmp_path, *samples, by="ann", skip=1, limit=1).read()
    assert [(example.id, example.responses[0].by) for example in chosen] == [("b/0/1", "ann")]
    with pytest.raises(DataError, match="critiques by 'eve': no rows"):
        reader(tmp_path, *samples, by="eve").read()


def test_the_prompt_is_the_one_that_a_critic_is_asked_with(tmp_path: Path) -> None:
    given = sample(Annotation(critique="ok"), reference=["Paris.", "In Paris."], meta={"tests": "assert f() == 1"})
    for prompt in (
        "{prompt} {response} {reference} {tests} {outcome}",
        "[system]\nBe just.\n[user]\n{prompt} {response}",
    ):
        made = reader(tmp_path, given, prompt=prompt)
        critic = Critic(client=Silent(), prompt=made.prompt)
        asked = critic.critique_request(critic.template(), given, given.responses[0]).messages
        (example,) = made.read()
        learned = example.prompt
        assert asked == ([Message(role="user", content=learned)] if isinstance(learned, str) else learned)
    assert "Paris.\n\nIn Paris. assert f() == 1 (none)" in asked[0].content or asked[0].role == "system"


def test_what_the_format_cannot_express_is_an_error_that_names_the_annotation(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="annotation a/0/0: an annotation has no critique"):
        list(reader(tmp_path, sample(Annotation(spans=[GOOD]))).read())
    alone = reader(tmp_path, sample(Annotation(spans=[GOOD])), format={"text": None})
    assert json.loads(target(next(alone.read()))) == {"good_spans": ["Paris"], "poor_spans": []}
