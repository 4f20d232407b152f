"""`fgrl inspect` of questions with a prompt file, on the model's own tokens."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from fgrl import registry
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Stage
from fgrl.pages.report.terminal import plain

PROMPT = Path(__file__).resolve().parents[2] / "prompts" / "rla_answer_search.txt"


@pytest.fixture
def shown(tmp_path: Path, tiny_model_dir: Path):
    """What is shown of two questions, the first of which has no answer."""
    know_components()
    rows = [
        {"query": f"why {n}?", "answers": answers, "passages": [{"passage_text": "Birds sing.", "url": "u"}]}
        for n, answers in enumerate([["No Answer Present."], ["Nobody knows", "It is pleasant"]])
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)

    def show(max_prompt_tokens: int):
        node = {
            "name": "sample", "model": "nobody/nothing", "sampling": {"max_new_tokens": 4, "max_prompt_tokens": max_prompt_tokens},
            "prompts": {"name": "ms_marco", "path": "json", "files": [str(data)], "prompt": str(PROMPT)},
        }  # fmt: skip
        said: list[str] = []
        run = SimpleNamespace(say=said.append, seed=0, model=lambda spec: SimpleNamespace(tokenizer=tokenizer))
        return list(registry.build(Stage, node).inspect(run, 3)), said

    return show


def test_prompts_are_shown_turn_by_turn_with_their_answers(shown) -> None:
    (one,), said = shown(1024)
    text = plain(one).replace("↵", "")
    assert "<|system|>\nYou are a helpful assistant" in text
    assert "Search results:\n[1] (u) Birds sing.\n<|user|>\nQuestion: why 1?\n<|assistant|>\n" in text
    assert set(one.kinds) == {"prompt"}
    assert one.note == "reference: Nobody knows | It is pleasant"
    assert "cut" not in one.title
    assert "left out 1 of 2 rows" in said[0]


def test_what_is_cut_of_a_long_prompt_is_said(shown) -> None:
    (whole,), _ = shown(4096)
    (one,), _ = shown(30)
    assert len(one.tokens) == 30
    assert one.title.endswith(f"30 prompt tokens, the first {len(whole.tokens) - 30} of {len(whole.tokens)} are cut")
    assert plain(one).endswith("<|assistant|>↵\n>>> ")
