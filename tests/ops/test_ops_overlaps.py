"""Tokens of two tokenizations that share a character."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from conftest import train_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl import rollouts
from fgrl.base import ops

TOKENIZER = train_tokenizer()


@settings(max_examples=1000, deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40), data=st.data())
def test_every_character_is_shared_by_the_tokens_that_cover_it(text: str, data: Any) -> None:
    """Against a table of characters."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    edges = sorted({0, len(text), *cuts})
    source = list(pairwise(edges))
    _ids, target = rollouts.encode_text(TOKENIZER, text)
    found = set(zip(*(one.tolist() for one in ops.overlaps(source, target)), strict=True))
    wanted = {
        (i, j) for i, (a, b) in enumerate(source) for j, (c, d) in enumerate(target) if set(range(a, b)) & set(range(c, d))
    }  # fmt: skip
    assert found == wanted
    assert {i for i, _ in found} == set(range(len(source)))  # no character is lost
