"""A conversation remembers its turns, streams what it draws, stops at Ctrl-C, and its answers get the rewards of a reward."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from trained_stages import finish, train
from trained_stages import stage as unfinished
from typer.testing import CliRunner

from fgrl import models, rollouts
from fgrl.base.errors import DataError, UsageError
from fgrl.base.files import sha256_of_code
from fgrl.base.visible import visible
from fgrl.cli import app
from fgrl.commands import chatting
from fgrl.exchange.publishing import conversation
from fgrl.exchange.publishing.conversation import Conversation
from fgrl.kinds import Segmenter
from fgrl.kinds.specs import ModelSpec
from fgrl.library import named_rewards
from fgrl.pages.report import terminal
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.registry import Problems, build
from fgrl.rollouts import encode_prompt
from fgrl.types import DrawnResponse, Message


@pytest.fixture(scope="module")
def model(tiny_model_dir) -> Any:
    return models.load(ModelSpec(base=str(tiny_model_dir)))


@pytest.fixture(scope="module")
def runs(tiny_model_dir, tmp_path_factory) -> Path:
    """A policy and a reward model, beside each other."""
    folder = tmp_path_factory.mktemp("chat") / "runs"
    reward = train(
        folder, "reward_model", tiny_model_dir, head="scalar", about={"segmenter": {"name": "ngram", "n": 2}, "aggregate": "mean"}
    )  # fmt: skip
    train(folder, "policy", tiny_model_dir, settings={"reward": {"name": "segment_rm", "model": "${out:rm}"}})
    policy = stage(folder, "policy")
    record = policy / "stage.json"
    record.write_text(
        record.read_text().replace('"upstream": {}', f'"upstream": {{"rm": "{reward.name.rpartition("-")[2]}"}}')
    )
    return folder


def stage(runs: Path, name: str) -> Path:
    (folder,) = (runs / "stages").glob(f"{name}-*")
    return folder


def talk(model: Any, **options: Any) -> Conversation:
    return Conversation("tiny", model, **{"max_tokens": 12, **options})


# -- turns -------------------------------------------------------------------------------------------------------------


def test_the_second_question_follows_the_first_answer(model):
    chat = talk(model, system="Be brief.")
    first = chat.ask("Why?")
    second = chat.ask("And then?")
    turns = [("system", "Be brief."), ("user", "Why?"), ("assistant", first.text), ("user", "And then?")]
    expected = encode_prompt(model.tokenizer, [Message(role=role, content=text) for role, text in turns])
    assert second.drawn.prompt == expected
    chat.reset()
    assert [turn.role for turn in chat.prompt("Why?")] == ["system", "user"]
    assert chat.ask("Why?").drawn.token_ids == first.drawn.token_ids, "the same seed and words give the same answer"


def test_seeds_and_turns_draw_differently_and_greedy_answers_do_not(model):
    assert (
        talk(model, temperature=1.0, seed=0).ask("Why?").drawn.token_ids
        != talk(model, temperature=1.0, seed=1).ask("Why?").drawn.token_ids
    )
    greedy = [talk(model, temperature=0, seed=seed).ask("Why?").drawn.token_ids for seed in (0, 1)]
    assert greedy[0] == greedy[1]


def test_what_is_streamed_is_the_answer(model):
    for seed in range(6):  # some answers end inside a character
        parts: list[str] = []
        reply = talk(model, temperature=1.5, seed=seed).ask("Why?", parts.append)
        assert "".join(parts) == reply.text
        assert (reply.drawn.finish == "end") == (reply.drawn.token_ids[-1] in model.eos_ids)


def test_ctrl_c_ends_the_answer_and_keeps_what_there_is(model):
    def shown(text: str) -> None:
        parts.append(text)
        if len(parts) == 3:
            raise KeyboardInterrupt

    parts: list[str] = []
    chat = talk(model)
    reply = chat.ask("Why?", shown)
    assert reply.stopped
    assert reply.drawn.finish != "end"
    assert 3 <= len(reply.drawn.token_ids) < 12
    assert reply.text.startswith("".join(parts))
    assert chat.turns[-1].content == reply.text
    assert not chat.ask("Why?").stopped


def test_a_long_conversation_loses_its_beginning(model):
    chat = talk(model)
    chat.turns = [Message(role="user", content="river " * 2000), Message(role="assistant", content="Yes.")]
    reply = chat.ask("Why?")
    assert len(reply.drawn.prompt) == model.max_tokens - chat.max_tokens
    assert reply.drawn.prompt.lost > 0
    with pytest.raises(UsageError, match="leaves no room for a question: tiny reads 2048 tokens"):
        talk(model, max_tokens=2048)


def test_without_a_chat_template_each_text_is_continued(tiny_model_dir):
    plain = models.load(ModelSpec(base=str(tiny_model_dir)))
    plain.tokenizer.chat_template = None
    chat = talk(plain)
    assert not chat.remembers
    chat.ask("The river")
    assert chat.prompt("A lamp") == "A lamp"


def test_a_template_that_refuses_is_explained_and_nothing_is_remembered(tiny_model_dir):
    strict = models.load(ModelSpec(base=str(tiny_model_dir)))
    strict.tokenizer.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ message['content'] }}{% endfor %}"
    )
    chat = talk(strict, system="Be brief.")
    with pytest.raises(DataError, match="refuses a conversation of system, user: no system role"):
        chat.ask("Why?")
    assert chat.turns == []


# -- rewards -----------------------------------------------------------------------------------------------------------


def setup(word: str, runs: Path, tmp_path: Path) -> Any:
    from fgrl.experiments.pipeline.run import scratch_run

    reward, products = named_rewards.reward(word, runs)
    with scratch_run("chat", cache=tmp_path, products=products, accelerator="cpu") as run:
        reward.setup(run)
    return reward


def test_a_reward_model_and_the_reward_of_a_stage_colour_the_same_tokens(model, runs, tmp_path):
    reply = talk(model).ask("Why?")
    scored = [
        conversation.rewarded(setup(str(stage(runs, name)), runs, tmp_path), model, None, "Why?", reply)
        for name in ("reward_model", "policy")
    ]
    assert scored[0] == scored[1]
    assert re.sub(r"<\|\w+\|>", "", "".join(scored[0].tokens)) == reply.text
    segments = [value for value in scored[0].values or [] if value is not None]
    assert len(segments) >= len(reply.drawn.token_ids) - 1
    assert segments[0] == segments[1]
    assert scored[0].facts[0] != ("reward", "missing")


def test_a_reward_that_needs_a_reference_asks_for_one(model, runs, tmp_path):
    word = str(stage(runs, "reward_model"))
    reward = setup(word, runs, tmp_path)
    reward._segmenter = build(Segmenter, {"name": "entropy", "cutoff": 1.0})
    reply = talk(model).ask("Why?")
    with pytest.raises(UsageError, match="name the reference as the second model"):
        conversation.rewarded(reward, model, None, "Why?", reply)
    assert conversation.rewarded(reward, model, model, "Why?", reply).facts != [("reward", "missing")]


def test_a_reward_whose_file_has_changed_is_announced(tmp_path, capsys):
    file = tmp_path / "rewards.py"
    file.write_text("def score(completions):\n    return [1.0 for _ in completions]\n")
    reward = {"name": "function", "path": f"{file}:score"}
    digest = sha256_of_code(file.read_bytes())
    identity = {"reward": {"name": "function", "path": {"sha256": digest}, "behind": ["score"]}}
    made = finish(
        unfinished(tmp_path / "runs", "policy", "rl", {"reward": reward}, makes="Checkpoint", identity=identity)
    )
    named_rewards.reward(str(made), tmp_path / "runs")
    assert capsys.readouterr().err == ""
    file.write_text("def score(completions):\n    return [2.0 for _ in completions]\n")
    named_rewards.reward(str(made), tmp_path / "runs")
    assert "rewards.py has changed since stage policy was made" in capsys.readouterr().err


def test_a_word_that_names_no_reward_is_explained(runs, tiny_model_dir, tmp_path):
    with pytest.raises(UsageError, match=r"no reward of this name; rewards: .*segment_rm"):
        named_rewards.reward("nothing", runs)
    with pytest.raises(UsageError, match="not a mapping in YAML"):
        named_rewards.reward("{name: [", runs)
    with pytest.raises(Problems, match="model"):
        named_rewards.reward("{name: segment_rm}", runs)
    plain = train(tmp_path / "runs", "policy", tiny_model_dir)
    with pytest.raises(UsageError, match="stage policy has no reward, and it trained no reward model"):
        named_rewards.reward(str(plain), runs)


# -- what is printed ---------------------------------------------------------------------------------------------------

PIECES, VALUES = ["The", " river", ",", " old", "\x1b[31m"], [0.5, 0.25, -1.0, 0.0, None]
ANSWER = MarkedTokens("policy", PIECES, ["response"] * 5, values=VALUES, facts=[("total reward", "−0.250")])


def printed(*answers: MarkedTokens, width: int = 100, plain_lines: bool = False, **options: Any) -> str:
    console = Console(width=width, highlight=False, record=True, legacy_windows=False, **options)
    with console.capture() as capture:
        terminal.print_answers(answers, console, plain_lines=plain_lines)
    return capture.get()


def test_signs_and_a_legend_stand_beside_the_colours():
    text = printed(ANSWER, force_terminal=True, color_system="truecolor")
    bare = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "⁺The river⁻, old␛[31m" in bare
    assert "⁺ above 0, ⁻ below 0" in bare
    assert "reward −0.250" in bare
    assert "48;2;" in text


def test_without_colours_groups_have_brackets():
    text = printed(ANSWER)
    assert "[The river | +0.750][, | −1][ old | 0]␛[31m" in text
    assert "above 0" not in text


def test_two_answers_are_side_by_side_where_there_is_room():
    other = MarkedTokens("base", ["A lamp"], ["response"])
    plain = MarkedTokens("policy", ["The river"], ["response"])
    first, second, *_ = printed(plain, other, width=80, force_terminal=True).splitlines()
    assert "policy" in first
    assert "base" in first
    assert "The river" in second
    assert "A lamp" in second
    assert len(printed(plain, other, width=40, force_terminal=True).splitlines()) == 4
    assert printed(plain, other, plain_lines=True).splitlines() == ["policy: The river", "base: A lamp"]


# -- the command -------------------------------------------------------------------------------------------------------


def chat(*words: object, input: str = "", runs: Path) -> Any:
    arguments = ["chat", *map(str, words), "--runs", str(runs), "--max-tokens", "6", "--temperature", "0"]
    return CliRunner().invoke(app, arguments, input=input)


def test_a_pipe_gets_one_line_for_each_question(runs, tiny_model_dir):
    done = chat(
        stage(runs, "policy"), tiny_model_dir, input="Why?\n\n/reset\nWhy?\n/system Be brief.\nWhy?\n", runs=runs
    )
    assert done.exit_code == 0, (done.output, done.exception)
    names = [stage(runs, "policy").name, tiny_model_dir.name]
    lines = [line for line in done.stdout.split("\n") if line.startswith((f"{names[0]}: ", f"{names[1]}: "))]
    assert [line.partition(":")[0] for line in lines] == names * 3
    assert lines[0] == lines[2]
    assert "the conversation is forgotten" in done.stderr
    assert "cut after 6 tokens" in done.stderr


def test_the_reward_is_drawn_in_a_pipe_too(runs):
    done = chat(
        stage(runs, "policy"), "--reward", stage(runs, "reward_model"), input="Why?\n/quit\nnever read\n", runs=runs
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert " | " in done.stdout
    assert done.stdout.count(f"{stage(runs, 'policy').name}: ") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a/b", "c/d", "e/f"], "wants one model, or two to compare"),
        (["runs/stages/nothing"], "no such folder"),
        (["recipes/quickstat.yaml"], "no such recipe"),
    ],
)  # fmt: skip
def test_a_word_that_names_no_model(runs, words, message):
    done = chat(*words, runs=runs)
    text = done.stderr + str(done.exception)
    assert done.exit_code != 0
    assert message in " ".join(text.replace("│", " ").split())


def test_a_reward_model_does_not_chat(runs):
    done = chat(stage(runs, "reward_model"), input="Why?\n", runs=runs)
    assert isinstance(done.exception, UsageError)
    assert "is a reward model, which cannot generate text: use it with --reward" in str(done.exception)


class Person:
    """Stands in for a person at a terminal: types these lines, then presses Ctrl-C."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def __call__(self, _prompt: str) -> str:
        if not self.lines:
            raise KeyboardInterrupt
        return self.lines.pop(0)


def test_at_a_terminal_answers_stream_and_ctrl_c_at_the_prompt_ends(model, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", Person("Why?", "/nonsense", "//etc is a folder"))
    talks = [talk(model, temperature=0)]
    chatting._Chat(talks, None, wide=True).hold()
    out, err = capsys.readouterr()
    assert visible(talks[0].turns[1].content) in out
    assert "no such command: /nonsense" in err
    assert talks[0].turns[2].content == "/etc is a folder"


def test_ctrl_c_in_an_answer_stays_in_the_chat(model, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", Person("Why?", "And then?"))
    talks = [talk(model)]
    echo, presses = chatting.echo, iter([True])

    def pressed(text: str, **options: Any) -> None:
        if options.get("end") == "" and next(presses, False):
            raise KeyboardInterrupt
        echo(text, **options)

    monkeypatch.setattr(chatting, "echo", pressed)
    chatting._Chat(talks, None, wide=True).hold()
    assert "(tiny: stopped)" in capsys.readouterr().err
    assert len(talks[0].turns) == 4


def test_ctrl_c_in_a_script_exits_with_130(runs, monkeypatch):
    def interrupted(self: Conversation, question: str, shown: Any = None) -> Any:
        return conversation.Reply(DrawnResponse([], "length"), True)

    monkeypatch.setattr(Conversation, "ask", interrupted)
    assert chat(stage(runs, "policy"), input="Why?\n", runs=runs).exit_code == 130


def test_tokens_that_share_a_character_are_shown_once(model):
    ids = model.tokenizer("🎉 a", add_special_tokens=False).input_ids
    said = rollouts.given(model, [1], [*ids, model.end_id])
    shown = rollouts.pieces(model.tokenizer, said, [1.0] * len(said))
    assert "".join(shown) == "🎉 a<|end|>"
    assert rollouts.pieces(model.tokenizer, rollouts.given(model, [1], [model.end_id]), [None]) == [""]
