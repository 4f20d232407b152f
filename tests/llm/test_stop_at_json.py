"""The local client ends an answer where its JSON object closes, and draws nothing else than it would have drawn."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from fgrl import models, rollouts
from fgrl.components.clients.local import Local
from fgrl.components.engines.hf import HF
from fgrl.experiments.pipeline.run import Run
from fgrl.feedback.llm.json_object import first_object
from fgrl.kinds import Early
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.types import Message, Prompt, Request

QUESTIONS = [Request(messages=[Message(role="user", content=f"lamps {number}")]) for number in range(10)]
LIKELY = {"{": 3.0, "}": 3.0, '"': 2.0, ":": 1.5, "1": 1.0, "a": 1.0}
"""Tokens of a model that writes braces and quotation marks at random, and how likely each is."""


@pytest.fixture
def writer(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tokenizer, plain = AutoTokenizer.from_pretrained(tiny_model_dir), models.LanguageModel.logits
    bias = torch.full((len(tokenizer),), -torch.inf)
    for text, weight in LIKELY.items():
        bias[tokenizer.convert_tokens_to_ids(text)] = math.log(weight)

    def biased(model, states):
        return plain(model, states) / 10 + bias

    monkeypatch.setattr(models.LanguageModel, "logits", biased)
    return tiny_model_dir


def client(folder: Path, place: Path, **options) -> Local:
    local = Local(**{"model": ModelSpec(base=str(folder)), "max_tokens": 40, **options})
    local.setup(Run("s", place, cache=place / "cache"))
    return local


def test_an_answer_is_the_beginning_of_what_would_have_been_drawn(writer, tmp_path) -> None:
    options = {"temperature": 1.0, "batch_size": 5}
    stopping = client(writer, tmp_path / "a", stop_at_json=True, **options)
    stopped = stopping.complete(QUESTIONS)
    through = client(writer, tmp_path / "b", **options).complete(QUESTIONS)
    lengths = []
    for short, long in zip(stopped, through, strict=True):
        assert long.text.startswith(short.text)
        assert long.usage.completion_tokens == 40
        place = first_object(long.text)
        if place is None:
            assert (short.text, short.finish, short.usage) == (long.text, "length", long.usage)
            continue
        # each token is one character; what lies in an object that is still open is not known to be the first
        assert len(short.text) == next(n for n in range(place[1], 41) if first_object(long.text[:n]))
        assert short.finish == "stop"
        lengths.append(short.usage.completion_tokens)
    assert 3 <= len(set(lengths)) <= len(lengths) < len(QUESTIONS)  # answers of both kinds, and of several lengths
    assert max(lengths) < 40
    assert stopping.counts()["completion_tokens"] == sum(answer.usage.completion_tokens for answer in stopped)


def test_rows_that_are_complete_leave_the_batch(tiny_model_dir) -> None:
    """The others are drawn as without it, and finished rows are no longer computed."""
    model = models.load(ModelSpec(base=str(tiny_model_dir)))
    drawer, prompts = HF().open(model), [Prompt((1, 20 + i)) for i in range(6)]
    sampling = Sampling(max_new_tokens=12)
    widths = []
    trunk = model.trunk.forward

    def counted(*args, **inputs):
        widths.append(len(inputs["input_ids"]))
        return trunk(*args, **inputs)

    model.trunk.forward = counted
    through = rollouts.sample(model, drawer, prompts, sampling, seed=0)
    whole_cost, widths[:] = sum(widths), []
    marks = frozenset(row.token_ids[i] for i, row in enumerate(through[:4])) - model.eos_ids
    short = rollouts.sample(model, drawer, prompts, sampling, seed=0, early=Early(ids=marks))
    for row, long in zip(short, through, strict=True):
        first = next((count for count, token in enumerate(long.token_ids) if token in marks), None)
        assert row.token_ids == (long.token_ids if first is None else long.token_ids[: first + 1])
        assert (row.finish == "early") == (first is not None)
    assert sum(widths) < whole_cost


def rare_letters(rows: list[list[str]], tokens: int) -> str:
    """Return letters that few responses have: one, or the last of a token and the first of the next."""
    found: Counter[str] = Counter()
    for row in rows:
        if tokens == 1:
            found.update(set("".join(row)))
        else:
            found.update({one[-1:] + two[:1] for one, two in pairwise(row)})
    return min(
        (one for one in found if len(one) == tokens and one.isascii() and one.isalpha()), key=lambda one: found[one]
    )


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_response_ends_behind_a_string(tokens: int, tiny_model_dir) -> None:
    """Also where the string lies in several tokens; the others are drawn as without it."""
    model = models.load(ModelSpec(base=str(tiny_model_dir)))
    drawer, prompts, sampling = HF().open(model), [Prompt((1, 20 + i)) for i in range(40)], Sampling(max_new_tokens=30)
    through = rollouts.sample(model, drawer, prompts, sampling, seed=0)
    letters = rare_letters(
        [[rollouts.decode(model.tokenizer, [id]) for id in row.token_ids] for row in through], tokens
    )
    short = rollouts.sample(model, drawer, prompts, sampling, seed=0, early=Early(strings=(letters,)))
    assert {"early"} < {row.finish for row in short}
    for row, long in zip(short, through, strict=True):
        texts = [rollouts.decode(model.tokenizer, long.token_ids[: count + 1]) for count in range(len(long.token_ids))]
        first = next((count for count, text in enumerate(texts) if letters in text), None)
        assert row.token_ids == (long.token_ids if first is None else long.token_ids[: first + 1])
        assert (row.finish == "early") == (first is not None)


def test_it_counts_for_keys_only_where_it_is_set(writer, tmp_path) -> None:
    plain, stopping = client(writer, tmp_path / "a"), client(writer, tmp_path / "b", stop_at_json=True)
    assert plain.key(QUESTIONS[0]) != stopping.key(QUESTIONS[0])
    assert "stop_at_json" not in plain.question(QUESTIONS[0])
