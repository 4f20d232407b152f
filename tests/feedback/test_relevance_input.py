"""What a discriminator reads: which prompts are accepted, and the tokens before and of a response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import train_tokenizer
from training_helpers import tiny

from fgrl.base.errors import DataError
from fgrl.rollouts.relevance_input import prompt_ids, relevance_prompt, response_ids

PROMPT = Path(__file__).resolve().parents[2] / "prompts" / "relevance.txt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{criterion} {response} and more", "ends with {response}"),
        ("[system]\nx\n[user]\n{criterion} {response}", "no turns"),
        ("{response}", "lacks the placeholder {criterion}"),
        ("{criterion} {question} {response}", "unknown placeholder {question}"),
    ],
)
def test_prompts_that_hide_the_response_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        relevance_prompt(str(tmp_path / "p.txt"))


def test_a_criterion_with_braces_stays_as_it_is() -> None:
    tokenizer = train_tokenizer()
    ids = prompt_ids(tokenizer, relevance_prompt(str(PROMPT)), "use {response} and {x}")
    assert "use {response} and {x}" in tokenizer.decode(ids)
    assert tokenizer.decode(ids).endswith("Response:")


def test_a_response_is_closed_by_a_token_without_characters(tiny_model_dir: Any) -> None:
    model = tiny(tiny_model_dir)
    ids, offsets = response_ids(model, "a lamp")
    assert ids[-1] == model.end_id
    assert offsets[-1] == (6, 6)
    assert len(ids) == len(offsets)
    assert ids[:-1] == model.tokenizer("a lamp", add_special_tokens=False).input_ids
