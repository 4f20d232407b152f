"""What chat templates are told besides the conversation: variables, tools; and texts at which a response is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import CHAT_TEMPLATE
from training_helpers import tiny
from transformers.utils import get_json_schema

from fgrl import rollouts
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import ModelSpec, Sampling
from fgrl.models.pretrained import tokenizer_of
from fgrl.rollouts.text import CALLING, thoughts, with_tools
from fgrl.types import DrawnResponse, Message, Prompt

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {}},
    },
}
WITH_TOOLS = "{% if tools %}{{ 'TOOLS ' + (tools | tojson) + '\n' }}{% endif %}" + CHAT_TEMPLATE
THINKING = CHAT_TEMPLATE + "{{ '' if think else '<|stop|>' }}{{ mood if mood is defined }}"


def with_template(folder: Path, base: Path, template: str) -> dict[str, Any]:
    (folder / "chat.jinja").write_text(template)
    return {"base": str(base), "chat_template": str(folder / "chat.jinja")}


def text(tokenizer: Any, prompt: Prompt) -> str:
    return str(tokenizer.decode(list(prompt.token_ids)))


def test_variables_reach_the_template_and_stay_with_the_model(tmp_path: Path, tiny_model_dir: Path) -> None:
    spec = with_template(tmp_path, tiny_model_dir, THINKING)
    plain, told = (
        tokenizer_of(str(tiny_model_dir), None, ModelSpec(**spec, template=template).templating)
        for template in ({}, {"think": True, "mood": "calm"})
    )
    assert text(plain, rollouts.encode_prompt(plain, "Hello")).endswith("<|stop|>")
    assert text(told, rollouts.encode_prompt(told, "Hello")).endswith("<|assistant|>\ncalm")
    told.save_pretrained(tmp_path / "saved")
    again = tokenizer_of(str(tmp_path / "saved"), None)
    assert text(again, rollouts.encode_prompt(again, "Hello")).endswith("<|assistant|>\ncalm")


def test_a_template_describes_the_tools(tmp_path: Path, tiny_model_dir: Path) -> None:
    spec = ModelSpec(**with_template(tmp_path, tiny_model_dir, WITH_TOOLS))
    tokenizer = tokenizer_of(str(tiny_model_dir), None, spec.templating)
    shown = text(tokenizer, rollouts.encode_prompt(tokenizer, "What is a lamp?", tools=[TOOL]))
    assert "TOOLS " in shown
    assert '"lookup"' in shown
    assert "tool_call" not in shown


@pytest.mark.parametrize("system", [[], [Message(role="system", content="Be brief.")]])
def test_a_template_that_ignores_tools_is_noticed(tiny_model_dir: Path, system: list[Message]) -> None:
    """As that of SmolLM2: then the system turn describes them."""
    tokenizer = tokenizer_of(str(tiny_model_dir), None)
    prompt = rollouts.encode_prompt(tokenizer, [*system, Message(role="user", content="What is a lamp?")], tools=[TOOL])
    first = prompt.turns[0]
    assert first.role == "system"
    assert first.content.count("Be brief.") == len(system)
    assert CALLING in first.content
    assert first.content.endswith("\nlookup(): Look a word up.")
    assert [turn.role for turn in prompt.turns] == ["system", "user"]


def found(word: str, most: int = 3, kinds: list[str] | None = None) -> str:
    """Look a word up.

    Args:
        word: The word.
        most: Upper bound on meanings.
        kinds: Nouns, verbs.
    """
    return word


def test_a_described_tool_has_its_parameters_their_types_and_what_they_are() -> None:
    (system, _user) = with_tools([Message(role="user", content="What is a lamp?")], [get_json_schema(found)])
    assert system.content.splitlines()[-1] == (
        'found(word: string, most?: integer, kinds?: {"type": "array", "items": {"type": "string"}, "nullable": true}): '
        "Look a word up. word: The word. most: Upper bound on meanings. kinds: Nouns, verbs."
    )


CASES = {
    "plain": ("Just an answer.", "Just an answer.", ""),
    "thought": ("<think>It is 4.</think>\n\nFour.", "Four.", "<think>It is 4.</think>\n\n"),
    "begun by the template": ("It is 4.</think> Four.", "Four.", "It is 4.</think> "),
    "cut off": ("Well <think>it may be", "Well ", "<think>it may be"),
    "twice": ("<think>a</think>One <think>b</think>two", "One two", "<think>a</think><think>b</think>"),
}


@pytest.mark.parametrize("case", CASES)
def test_thoughts_are_no_part_of_an_answer(tiny_model_dir: Path, case: str) -> None:
    text, answer, thought = CASES[case]
    tokenizer = tokenizer_of(
        str(tiny_model_dir), None, ModelSpec(base=str(tiny_model_dir), thinking=["<think>", "</think>"]).templating
    )
    response = DrawnResponse(tokenizer(text, add_special_tokens=False).input_ids, "length")
    assert rollouts.decode(tokenizer, response) == answer
    assert thoughts(tokenizer, response.token_ids) == thought
    assert rollouts.decode(tokenizer, response.token_ids) == text
    offsets = rollouts.offsets(tokenizer, response)
    assert "".join(answer[max(start, last) : end] for (start, end), last in zip(offsets, [0, *(end for _, end in offsets)], strict=False)) == answer  # fmt: skip
    whole = rollouts.offsets(tokenizer, response.token_ids)
    for (start, end), (a, b) in zip(offsets, whole, strict=True):
        assert answer[start:end] in text[a:b]


def test_a_response_is_complete_at_a_stop_text(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    asked = [Prompt((1, 20, 30, 40)), Prompt((1, 50))]
    whole = rollouts.sample(model, HF().open(model), asked, Sampling(max_new_tokens=40), seed=5)
    stop = whole[0].text[5]
    cut = rollouts.sample(
        model, HF().open(model), asked, Sampling(max_new_tokens=40, stop=[stop, "no such text"]), seed=5
    )
    for before, each in zip(whole, cut, strict=True):
        assert each.token_ids == before.token_ids[: len(each)]
        if stop in before.text:
            assert each.finish == "early"
            assert stop in each.text
            assert each.record.finished
            assert stop not in rollouts.decode(model.tokenizer, each.token_ids[:-1])
    assert stop in cut[0].text
