"""Token counts of prompts: estimated, counted by a tokenizer, and bounded."""

from __future__ import annotations

import pytest
from client_helpers import request
from hypothesis import given
from hypothesis import strategies as st

from fgrl.components.clients.openai import OpenAI
from fgrl.llm import tokens
from fgrl.types import Message, Request

TEXT = (
    "You compare two answers to one question. Say which of them serves the reader better, and why; do not be "
    "misled by length, by politeness, or by the order in which they stand. A definition that names the wrong kind "
    "of thing is worse than one that is merely incomplete.\n\nQuestion: what is a river?\nFirst answer: a large "
    "natural stream of water (larger than a creek), 42 kilometres long.\nSecond answer: the sea."
)


@pytest.mark.smollm2
def test_the_estimate_is_near_a_real_tokenizer_and_the_bound_above_it() -> None:
    asked = Request(messages=[Message(role="system", content="You are a judge."), Message(role="user", content=TEXT)])
    real = OpenAI(model="m", tokenizer="smollm2-135m-instruct").count_tokens(asked)
    assert real < tokens.at_most(asked)
    assert OpenAI(model="m").count_tokens(asked) == pytest.approx(real, rel=0.1)


@given(st.text(max_size=200))
def test_the_bound_is_above_the_estimate(text: str) -> None:
    assert 0 < tokens.estimate(request(text)) <= tokens.at_most(request(text))
