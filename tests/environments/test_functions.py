"""Tools as TRL has them, and environments written for TRL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, played, rewards
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import UserCodeError
from fgrl.components.environments.functions import Functions
from fgrl.kinds import Environment
from fgrl.kinds.functions import FactoryFile, FunctionFile
from fgrl.kinds.specs import Sampling
from fgrl.registry import Problems, build
from fgrl.rollouts.calls import ToolCall, tool_calls
from fgrl.rollouts.conversing import Conversing
from fgrl.types import Message, Sample

FILE = Path(__file__).with_name("word_env.py")
QUESTION = Sample(id="0", prompt="Find the word.", meta={"word": "level"})
TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "content": {"content": "text", "optional": True, "close": "<|end|>"},
        "tool_calls": {
            "open": "[[", "close": "]]", "content": "json", "repeats": True, "optional": True,
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def word(**fields: Any) -> Functions:
    return Functions(factory=f"{FILE}:WordEnv", **fields)


def tools(*names: str, **fields: Any) -> Functions:
    return Functions(tools=[f"{FILE}:{name}" for name in names], **fields)


def test_a_class_written_for_trl_runs_unchanged(model: Any) -> None:
    said = [call("guess", letter="e"), f"Hm. {call('guess', letter='x')}", call("say", word="level"), "It is level."]
    talk = played(model, word(), said, QUESTION)
    assert talk.terminated
    assert talk.prompt.turns[-1].content == "Find the word. It has 5 letters."
    assert [turn.observation for turn in talk.turns] == ["e stands at 2, 4.", "x is not there.", "Right.", ""]
    assert rewards(talk) == [0.0, 0.0, 0.0, pytest.approx(1.0 - 0.2)]
    assert all(turn.error is None for turn in talk.turns)
    assert [turn.numbers["calls"] for turn in talk.turns] == [1.0, 1.0, 1.0, 0.0]


def test_a_limit_does_not_take_the_reward_away(model: Any) -> None:
    """TRL asks for the reward however the conversation ends."""
    said = [call("guess", letter="e"), call("say", word="radar"), "So?"]
    by_turns = played(model, word(max_turns=2), said, QUESTION)
    by_tokens = played(model, word(), said, QUESTION, tokens=75)
    assert len(by_tokens) <= 75
    for talk in (by_turns, by_tokens):
        assert not talk.terminated
        assert sum(rewards(talk)) == pytest.approx(0.15 if len(talk.turns) == 2 else -0.1)
    assert rewards(by_turns) == [0.0, pytest.approx(0.15)]


def test_tools_are_described_to_the_policy(model: Any) -> None:
    environment = word()
    environment.setup(None)
    described = {tool["function"]["name"]: tool["function"] for tool in environment.begin(QUESTION, 3).tools}
    assert list(described) == ["guess", "say"]
    assert described["guess"]["description"] == "Guess a letter of the word."
    assert described["guess"]["parameters"]["properties"] == {
        "letter": {"type": "string", "description": "One letter."}
    }
    drawer = Conversing(script := Script(model.tokenizer, ["Level."]), environment, model)
    rollouts.draw(model, drawer, [QUESTION], Sampling(max_new_tokens=50, max_prompt_tokens=2000), 1, seed=0)
    assert "guess(letter: string): Guess a letter of the word. letter: One letter." in script.prompts[0]


@pytest.mark.parametrize(
    ("said", "observation", "error"),
    [
        ("<tool_call>{oops}</tool_call>", "Error: the call cannot be read as JSON", "unreadable call"),
        ('{"name": "add", "arguments": {"a": 1', "Error: the call cannot be read as JSON", "unreadable call"),
        ("<tool_call></tool_call>", "Error: the call cannot be read as JSON", "unreadable call"),
        ('<tool_call>{"tool": "add"}</tool_call>', 'Error: the call cannot be read: wants {"name"', "unreadable call"),
        (
            call("subtract", a=1),
            "Error: there is no tool 'subtract'; the tools are add, leave",
            "subtract: LookupError",
        ),
        (call("add", c=1), "Error: add() got an unexpected keyword argument 'c'", "add: TypeError"),
        (call("add", a="1"), 'Error: can only concatenate str (not "int") to str', "add: TypeError"),
        (call("leave", code=3), "Error: 3", "leave: SystemExit"),
        (
            call("add", a=4) + call("add"),
            "5\nError: add() missing 1 required positional argument: 'a'",
            "add: TypeError",
        ),
    ],
)
def test_what_the_text_causes_is_a_turn_with_a_message(model: Any, said: str, observation: str, error: str) -> None:
    talk = played(model, tools("add", "leave", error_reward=-0.5), [said, "Well."], QUESTION)
    assert talk.terminated
    assert talk.lost is None
    assert rewards(talk) == [-0.5, 0.0]
    assert talk.turns[0].observation.startswith(observation)
    assert talk.turns[0].error is not None
    assert talk.turns[0].error.startswith(error)


def test_a_tool_whose_server_is_gone_is_no_fault_of_the_text(model: Any) -> None:
    talk = played(model, tools("lost"), [call("lost", server="s1")], QUESTION)
    assert talk.lost == "ConnectionResetError: s1 is gone"


def test_two_calls_in_one_turn(model: Any) -> None:
    talk = played(model, tools("add"), [call("add", a=1, b=2) + "\n" + call("add", a=5), "3, 6"], QUESTION)
    assert talk.turns[0].observation == "3\n6"
    assert talk.turns[0].numbers == {"calls": 2.0}


def test_conversations_share_nothing(model: Any) -> None:
    environment = word()
    environment.setup(None)
    one, other = (environment.begin(QUESTION, seed) for seed in (1, 1))
    one.step(call("guess", letter="l"))
    assert one.step("l")[1] == pytest.approx(-0.1)
    assert other.step("l")[1] == 0.0


class Tokenizer:
    """As much of one as calls are read with."""

    all_special_tokens = ["<|eot|>", "<|python_tag|>"]
    response_template = None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The answer is 4.<|eot|>", []),
        ('The set {"a", "b"}', []),
        ('{"answer": 4}', []),
        ('<think>{"name": 1}</think> Four.', []),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', ["f"]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', ["f"]),
        ('<tool_call>{"name": "f"}</tool_call> and <tool_call>{"name": "g"}</tool_call>', ["f", "g"]),
        ('{"name": "f", "parameters": {"a": 1}}<|eot|>', ["f"]),
        ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g"}<|eot|>', ["f", "g"]),
        ('[{"name": "f", "arguments": "{\\"a\\": 1}"}]', ["f"]),
        ('```json\n{"name": "f", "arguments": {"a": 1}}\n```', ["f"]),
    ],
)
def test_forms_of_calls(text: str, names: list[str]) -> None:
    calls = tool_calls(Tokenizer(), text, [])
    assert [each.name for each in calls] == names
    assert all(each.arguments in ({"a": 1}, {}) for each in calls)
    assert not calls or calls[0].name == "f"


@pytest.mark.parametrize("text", ["<|python_tag|>print(1)", '[{"name": 3}]', '{"name": "f", "arguments": [1]}'])
def test_calls_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|no JSON object"):
        tool_calls(Tokenizer(), text, [])


def test_a_tokenizers_own_template_says_what_a_call_is(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    model.tokenizer.response_template = TEMPLATE
    found = tool_calls(model.tokenizer, 'So: [[{"name": "add", "arguments": {"a": 2}}]]<|end|>', [])
    assert found == [ToolCall("add", {"a": 2})]
    talk = played(
        model, tools("add"), ['[[{"name": "add", "arguments": {"a": 2}}]]', "[[{]]", call("add", a=1)], QUESTION
    )
    assert talk.turns[0].observation == "3"
    assert (talk.turns[1].error or "").startswith("unreadable call")
    assert talk.terminated  # the tags of other families are no call here
    assert len(talk.turns) == 3


def test_mistakes_in_a_recipe() -> None:
    with pytest.raises(Problems, match="name functions under `tools`, or a class under `factory`"):
        build(Environment, {"name": "functions"})
    assert "has no function 'Missing'" in str(FactoryFile.problems(f"{FILE}:Missing")[0].message)
    assert "is a class, not a function" in str(FunctionFile.problems(f"{FILE}:WordEnv")[0].message)
    assert not FactoryFile.problems(f"{FILE}:WordEnv")


def test_a_tool_that_cannot_be_described(model: Any) -> None:
    for name in ("undescribed", "no_arguments_described"):
        with pytest.raises(UserCodeError, match=rf"(?s)word_env\.py:\d+: the tool {name} cannot be described.*`Args:`"):
            tools(name).setup(None)
    with pytest.raises(UserCodeError, match="wants tools with different names"):
        tools("add", "add").setup(None)


def test_what_reset_raises_is_the_users(model: Any) -> None:
    with pytest.raises(UserCodeError, match=r"(?s)word_env\.py:9: WordEnv\.reset raised KeyError: 'word'"):
        played(model, word(), ["x"], QUESTION.model_copy(update={"meta": {}}))


def test_a_conversation_as_the_prompt(model: Any) -> None:
    turns = [Message(role="system", content="Be brief."), Message(role="user", content="Find it.")]
    talk = played(model, word(), ["level"], QUESTION.model_copy(update={"prompt": turns}))
    assert talk.prompt.turns[-1].content == "Find it. It has 5 letters."
