"""The metric and the segmenter `function`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import train_tokenizer
from function_helpers import component, rollout_of, write

from fgrl.base.errors import UserCodeError
from fgrl.measuring.answer import Answer
from fgrl.registry import Problems
from fgrl.types import Response, Sample, Segmentable

METRICS = """
def words(completions, level=None, **kwargs):
    return [None if own == "skip" else float(len(text.split())) for text, own in zip(completions, level)]

def several(completions, **kwargs) -> dict[str, list[float]]:
    return {"letters": [len(text) for text in completions], "commas": [text.count(",") for text in completions]}

def per_token(completion_tokens, **kwargs) -> list[list[float]]:
    return [[float("a" in token) for token in tokens] for tokens in completion_tokens]

def spans(completions, **kwargs) -> list[list[tuple[int, int, float]]]:
    return [[(0, 1, -1.0), (1, 2, 0.5)] if text else [] for text in completions]

def by_ids(completions, completion_ids):
    return [0.0 for _ in completions]
"""


def answers(*texts: str, given: bool = False) -> list[Answer]:
    return [
        Answer(
            model="policy",
            sample=Sample(id=str(i), prompt="?", meta={"level": "skip" if text == "skip" else "keep"}),
            response=Response(text=text, finished=None if given else True),
            tokens=[] if given else list(text),
            offsets=[] if given else [(at, at + 1) for at in range(len(text))],
        )
        for i, text in enumerate(texts)
    ]


def metric(folder: Path, name: str, **fields: Any) -> Any:
    write(folder, METRICS, "metrics.py")
    return component("metric", folder, path=f"metrics.py:{name}", **fields)


def means(made: Any, own: list[Answer]) -> dict[str, dict[str, float | None]]:
    measured = made.measure({"policy": own})
    return {
        title: {number: estimate["mean"] for number, estimate in by_model["policy"].items()}
        for title, by_model in measured.items()
    }


def test_numbers_of_a_function_are_means_with_intervals(tmp_path: Path) -> None:
    own = answers("a b", "skip", "a b c d")
    measured = metric(tmp_path, "words").measure({"base": answers("a", "skip", "a"), "policy": own}, baseline="base")
    estimate = measured["words"]["policy"]["words"]
    assert (estimate["mean"], estimate["n"]) == (3.0, 2)
    assert estimate["low"] < estimate["high"]
    assert measured["words"]["differences"]["policy"]["words"]["mean"] == 2.0
    assert means(metric(tmp_path, "words", title="length"), own) == {"length": {"words": 3.0}}


def test_several_numbers_numbers_of_tokens_and_spans(tmp_path: Path) -> None:
    own = answers("ab,", "a")
    assert means(metric(tmp_path, "several"), own) == {"several": {"letters": 2.0, "commas": 0.5}}
    assert means(metric(tmp_path, "per_token"), own) == {"per_token": {"per_token": 2 / 4}}
    assert means(metric(tmp_path, "spans"), answers("ab,", "", "ab")) == {"spans": {"spans": pytest.approx(-1 / 3)}}
    assert means(metric(tmp_path, "per_token"), answers("ab", given=True)) == {"per_token": {"per_token": None}}


def test_a_metric_that_asks_for_token_ids_is_told_before_answers_are_drawn(tmp_path: Path) -> None:
    made = metric(tmp_path, "by_ids")
    with pytest.raises(UserCodeError, match="needs the argument 'completion_ids', which is not known here"):
        made.check_prompts([Sample(id="1", prompt="?")])


CUTS = """
def cut(completions, **kwargs) -> list[list[int]]:
    return [[at + 1 for at, letter in enumerate(text) if letter == ","] for text in completions]

def every(completion_ids, step):
    return [list(range(0, len(ids), step)) for ids in completion_ids]

def outside(completions):
    return [[99] for text in completions]

def numbers(completions) -> list[float]:
    return [1.0 for text in completions]
"""


@pytest.fixture(scope="module")
def view() -> Segmentable:
    rollout = rollout_of(["the lamp, the table", "a bird", ""], tokenizer=train_tokenizer())
    return Segmentable(
        ids=rollout.response_ids, mask=rollout.mask, eos=rollout.eos, texts=rollout.texts, offsets=rollout.offsets
    )


def segmenter(folder: Path, name: str, **fields: Any) -> Any:
    write(folder, CUTS, "cuts.py")
    return component("segmenter", folder, path=f"cuts.py:{name}", **fields)


def test_characters_start_segments_at_their_tokens(tmp_path: Path, view: Segmentable) -> None:
    ids = segmenter(tmp_path, "cut").segment_ids(view)
    assert view.offsets is not None
    second = [token for token, (start, end) in enumerate(view.offsets[0]) if end > 9 and start < end]
    assert (ids[0] == 1).nonzero().flatten().tolist() == second
    assert set(ids[1].tolist()) == {0, -1}


def test_tokens_start_segments(tmp_path: Path, view: Segmentable) -> None:
    ids = segmenter(tmp_path, "every", arguments={"step": 2}).segment_ids(view)
    length = int((view.mask & ~view.eos)[0].sum())
    assert ids[0, :length].tolist() == [token // 2 for token in range(length)]
    assert torch.equal(ids >= 0, (view.mask & ~view.eos) | (view.eos & (ids >= 0)))


def test_boundaries_outside_of_the_text_are_the_functions_mistake(tmp_path: Path, view: Segmentable) -> None:
    with pytest.raises(UserCodeError, match=r"cuts\.py:9: outside returned the boundary 99 for text 0, which has 19"):
        segmenter(tmp_path, "outside").segment_ids(view)
    with pytest.raises(UserCodeError, match=r"cuts\.py:12: numbers returned 1\.0 \(float\) for text 0"):
        segmenter(tmp_path, "numbers").segment_ids(view)
    with pytest.raises(UserCodeError, match="needs the argument 'step'"):
        segmenter(tmp_path, "every").segment_ids(view)
    with pytest.raises(Problems, match="wants a function of a file"):
        component("segmenter", tmp_path, path="")
