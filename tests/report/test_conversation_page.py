"""Conversations with an environment on the page and in a cell: who spoke, rewards of turns, what was observed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fake_run, write_answers, write_lines
from pages import assert_safe, page, stage

from fgrl.measuring.answer import Answer
from fgrl.pages.report import fragment

HOSTILE = "<script>alert(1)</script> & <b>more</b>"
TURNS = [
    {"end": 2, "reward": 0.5, "text": "ab", "observation": HOSTILE},
    {"end": 6, "reward": -1.25, "text": "cd", "observation": "the last word", "error": "ValueError: <i>no</i>"},
]
TALK = {
    "response": {"text": "ab\nuser\ncd", "finished": True, "score": 0.25},
    "tokens": ["a", "b", "\nuser", "\n", "c", "d"], "offsets": [[0, 1], [1, 2], [2, 7], [7, 8], [8, 9], [9, 10]],
    "turn": [0, 0, -1, -1, 1, 1], "turns": TURNS,
}  # fmt: skip
ROLLOUT = {
    "iteration": 0, "model": "policy", "sample": {"id": "1", "prompt": "Play"}, **TALK,
    "token_rewards": {"r": [None, 0.5, None, None, None, -1.25]}, "advantages": [0.1, 0.2, None, None, 0.3, 0.4],
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=2, points=3, steps=3)


def shown(run: Path, rows: list[dict[str, Any]]) -> str:
    write_lines(stage(run, "policy") / "out/rollouts.jsonl", rows)
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert "<script>alert" not in text
    drawn = re.search(r'<section class="rollouts".*?</section>', text, re.DOTALL)
    assert drawn
    return drawn[0]


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))


def test_a_rollout_is_drawn_as_a_conversation(run: Path) -> None:
    drawn = shown(run, [ROLLOUT])
    layers = re.findall(r'<p class="text layer.*?</p>', drawn, re.DOTALL)
    assert len(layers) == 2  # reward and advantage
    for layer in layers:
        heads = re.findall(r'<b class="who">(.*?)</b>', layer)
        assert [re.sub("<.*", "", head).strip() for head in heads] == [
            "turn 1 · reward +0.500", "environment", "turn 2 · reward −1.25", "environment",
        ]  # fmt: skip
        assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;more&lt;/b&gt;" in layer
        assert "ValueError: &lt;i&gt;no&lt;/i&gt;" in layer
        assert layer.index("alert") < layer.index("turn 2") < layer.index("the last word")
        assert [place for place in range(1, 7) if f"token {place} of 6" in layer] == [1, 2, 5, 6]
    assert "advantage +0.400" in layers[1]
    assert "turns 2" in words(drawn)
    assert "environment −0.750" in words(drawn)


def test_a_failed_environment_is_named(run: Path) -> None:
    lost = "TimeoutError: <img src=x>"
    drawn = shown(run, [{**ROLLOUT, "lost": lost, "advantages": None, "response": {**TALK["response"], "score": None}}])
    assert "the environment failed: TimeoutError: &lt;img src=x&gt;" in drawn
    assert "the algorithm left" not in drawn
    assert "the reward is missing" not in drawn


def test_answers_are_drawn_as_conversations(run: Path) -> None:
    rows = [{"model": model, "sample": {"id": "1", "prompt": "Play"}, **TALK} for model in ("sft", "policy")]
    write_answers(stage(run, "evaluate") / "out", rows)
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert "<script>alert" not in text
    assert text.count("turn 2 · reward −1.25") == 2


def test_a_cell_shows_a_conversation() -> None:
    html = fragment.html(Answer.model_validate({"sample": {"id": "1", "prompt": "Play"}, **TALK}))
    assert "turn 1 · reward +0.500" in html
    assert "<script>alert" not in html


def test_a_turn_has_its_end_and_silence_of_the_environment_is_not_drawn() -> None:
    talk = {
        "response": {"text": "a\nuser\nc", "finished": True}, "tokens": ["a", "END", "\nuser", "c", "END"],
        "offsets": [[0, 1], [1, 1], [1, 7], [7, 8], [8, 8]], "turn": [0, 0, -1, 1, 1],
        "turns": [{"end": 2, "reward": 0.0, "text": "a", "observation": "go on"}, {"end": 5, "reward": 1.0, "text": "c", "observation": ""}],
    }  # fmt: skip
    html = fragment.html(Answer.model_validate({"sample": {"id": "1", "prompt": "Play"}, **talk}))
    assert html.count("ends the answer") == 2
    assert html.count('<b class="who">environment') == 1
