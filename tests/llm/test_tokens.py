"""Token counts of prompts: estimated, counted by a tokenizer, and bounded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from client_helpers import request
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import Unavailable
from fgrl.components.clients.openai import OpenAI
from fgrl.experiments.pipeline.offline import from_cache_only
from fgrl.feedback.llm import tokens
from fgrl.feedback.llm.tokens import load_tokenizer
from fgrl.kinds.specs import ModelSpec
from fgrl.models import sources
from fgrl.models.pretrained import tokenizer_of
from fgrl.rollouts import encode_prompt
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


@pytest.mark.smollm2
def test_counting_needs_no_torch_and_counts_what_the_model_is_given() -> None:
    code = (
        "import sys; from fgrl.components.clients.local import Local; from fgrl.kinds.specs import ModelSpec; "
        "from fgrl.types import Message, Request; "
        "asked = Request(messages=[Message(role='user', content=sys.argv[1])]); "
        "count = Local(model=ModelSpec(base='smollm2-135m-instruct')).count_tokens(asked); "
        "assert 'torch' not in sys.modules; print(count)"
    )
    done = subprocess.run([sys.executable, "-c", code, TEXT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    source = sources.locate(ModelSpec(base="smollm2-135m-instruct"))
    assert int(done.stdout) == len(encode_prompt(tokenizer_of(source.name, None), TEXT))


def test_a_tokenizer_of_the_hub_is_unavailable_where_the_hub_is_switched_off() -> None:
    with from_cache_only(), pytest.raises(Unavailable, match="owner/no-such-model: its tokenizer is not in the cache"):
        load_tokenizer(ModelSpec(base="owner/no-such-model"))
