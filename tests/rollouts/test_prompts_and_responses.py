"""`Prompt` and `DrawnResponse`: who reads their fields, and what they keep."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from conftest import train_tokenizer

import fgrl
from fgrl import rollouts
from fgrl.types import DrawnResponse, Message, Prompt, Response

PACKAGE = Path(fgrl.__file__).parent
FIELDS = {"token_ids", "token_logp"}
"""No other object of fgrl has fields of these names, but the public `Generated`, which nobody reads in fgrl."""
OPEN = ("rollouts",)


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Of the files that name a field, or a prompt."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
    return [
        (file.relative_to(PACKAGE).as_posix(), node)
        for file, text in texts.items() if any(word in text for word in (*FIELDS, "Prompt"))
        for node in ast.walk(ast.parse(text))
    ]  # fmt: skip


def test_only_rollouts_opens_a_prompt_or_a_response() -> None:
    opened = {file for file, node in nodes() if isinstance(node, ast.Attribute) and node.attr in FIELDS}
    assert {"rollouts/collecting.py", "rollouts/text.py", "rollouts/serving/completions.py"} <= opened
    assert {file for file in opened if not file.startswith(OPEN)} == {
        "experiments/pipeline/trial_draws.py",  # what `fgrl check` looks at
        "kinds/engine.py",  # the stream of an engine that has none of its own
        "types/drawn.py",  # their lengths
    }


def test_only_rollouts_makes_a_prompt() -> None:
    imported = {
        file for file, node in nodes()
        if isinstance(node, ast.ImportFrom) and node.module == "fgrl.types" and "Prompt" in {one.name for one in node.names}
    }  # fmt: skip
    makers = {
        file for file, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Prompt" and file in imported
    }  # fmt: skip
    assert "rollouts/text.py" in makers
    assert all(file.startswith("rollouts/") for file in makers), makers


def test_equal_prompts_are_read_once_whatever_they_were_made_of() -> None:
    """An engine reads equal prompts once, and orders them by length and ids."""
    one = Prompt((1, 2), turns=[Message(role="user", content="a")], lost=3)
    assert one == Prompt((1, 2))
    assert len({one, Prompt((1, 2)), Prompt((1, 3))}) == 2
    assert sorted([Prompt((2,)), Prompt((1, 9)), Prompt((1, 2))]) == [Prompt((1, 2)), Prompt((1, 9)), Prompt((2,))]
    assert one != replace(one, tensors={"pixel_values": 1})


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_a_prompt_says_how_much_of_it_was_cut(most: int) -> None:
    tokenizer = train_tokenizer()
    turns = [Message(role="system", content="Be brief."), Message(role="user", content="The river runs.")]
    whole, cut = rollouts.encode_prompt(tokenizer, turns), rollouts.encode_prompt(tokenizer, turns, most)
    assert len(cut) == min(most, len(whole))
    assert len(cut) + cut.lost == len(whole)
    assert list(cut.turns) == turns
    assert cut.template == tokenizer.chat_template


def test_the_record_of_a_response_is_its_text_and_whether_it_ended() -> None:
    assert DrawnResponse([5, 2], "end", text="a").record == Response(text="a", finished=True)
    for finish, finished in (("early", True), ("length", False)):
        assert DrawnResponse([5], finish, text="a").record == Response(text="a", finished=finished)  # type: ignore[arg-type]
    assert DrawnResponse([5], "end", text="a", thought="b").record.meta == {"thought": "b"}


def test_what_is_made_of_ids_is_the_same_for_a_response() -> None:
    tokenizer = train_tokenizer()
    ids = tokenizer("the sea 🎉", add_special_tokens=False).input_ids
    response = DrawnResponse(ids, "length")
    assert rollouts.decode(tokenizer, response) == rollouts.decode(tokenizer, ids)
    assert rollouts.offsets(tokenizer, response) == rollouts.offsets(tokenizer, ids)
    assert rollouts.token_texts(tokenizer, Prompt((1,)), response) == rollouts.token_texts(tokenizer, [1, *ids])
    padded = rollouts.pad([Prompt((1, 4))], [response], pad_id=0, eos_ids={2})
    assert padded.response_ids.tolist() == rollouts.pad([[1, 4]], [ids], pad_id=0, eos_ids={2}).response_ids.tolist()
