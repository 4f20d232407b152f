"""The questions of a critic: equal ones once, those of all processes together, each answer back to its response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import PrivateAttr

from fgrl.base.errors import DataError
from fgrl.feedback.critic import Critic
from fgrl.feedback.llm import together
from fgrl.kinds import Client
from fgrl.types import Completion, Request, Response, Sample

SAMPLE = Sample(id="a", prompt="Where?")


class Quoting(Client):
    """Quotes the first word of the response."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        texts = [request.messages[-1].content.partition(": ")[2] for request in requests]
        self._asked += texts
        return [
            Completion(text=json.dumps({"good_spans": text.split()[:1], "poor_spans": []}), finish="stop")
            for text in texts
        ]


def critic(folder: Path, prompt: str = "{prompt}: {response}") -> Critic:
    (folder / "prompt.txt").write_text(prompt)
    return Critic(client=Quoting(), prompt=str(folder / "prompt.txt"), format={"text": None})  # type: ignore[arg-type]


def cases(*texts: str) -> list[tuple[Sample, Response]]:
    return [(SAMPLE, Response(text=text)) for text in texts]


def quoted(outcomes: Sequence[Any], texts: Sequence[str]) -> list[str | None]:
    """The text of each response's first span."""
    spans = [None if outcome is None else outcome.value.annotation.spans[0] for outcome in outcomes]
    return [None if span is None else text[span.start : span.end] for span, text in zip(spans, texts, strict=True)]


def test_equal_questions_are_asked_once_and_a_response_without_text_not_at_all(tmp_path: Path) -> None:
    made, texts = critic(tmp_path), ["one two", " \n", "three", "one two"]
    outcomes = made.critiques(cases(*texts))
    assert quoted(outcomes, texts) == ["one", None, "three", "one"]
    assert made.client._asked == ["one two", "three"]  # type: ignore[attr-defined]


def test_every_process_asks_the_questions_of_all_and_gets_its_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two ranks hold, as each of them would see it."""
    shares = [["one two", "three"], ["four", "one two"]]
    gathered: list[Any] = []
    monkeypatch.setattr(together, "everybody", lambda items: gathered.extend(items) or list(items))
    for share in shares:
        critic(tmp_path).critiques(cases(*share))
    monkeypatch.setattr(together, "everybody", lambda items: list(gathered))
    for share in shares:
        made = critic(tmp_path)
        assert quoted(made.critiques(cases(*share)), share) == [text.split()[0] for text in share]
        assert made.client._asked == ["one two", "three", "four"], "the same on every rank"  # type: ignore[attr-defined]


def test_a_prompt_that_does_not_show_the_response_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks the placeholder \{response\}"):
        critic(tmp_path, "{prompt}").critiques([])
    with pytest.raises(DataError, match=r"unknown placeholder \{criterion\}"):
        critic(tmp_path, "{prompt} {response} {criterion}").critiques([])
