"""`fgrl init`: the recipe that it writes is valid and runs, and says what it assumed."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from wording import said

from fgrl import cli, registry
from fgrl.base.console import Console
from fgrl.base.errors import DataError, Unavailable, UsageError, UserCodeError
from fgrl.exchange.starting import Draft, Request, draft
from fgrl.exchange.starting.columns import detect
from fgrl.exchange.starting.templates import flow
from fgrl.experiments.pipeline import Options, execute
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.experiments.recipe import load, shipped
from fgrl.runs.results.concluding import conclude
from fgrl.runs.run import Run
from fgrl.training.steps import micro_batches_per_step
from fgrl.types import DrawnResponse

ROWS = 20


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


SHAPES: dict[str, Any] = {
    "sft": lambda i: {"question": f"What is {i}?", "answer": f"The number {i}.", "source": "made"},
    "dpo": lambda i: {"prompt": f"What is {i}?", "chosen": f"The number {i}.", "rejected": f"No {i}"},
    "reward_model": lambda i: {
        "chosen": turns(f"What is {i}?", f"The number {i}."), "rejected": turns(f"What is {i}?", f"No {i}"),
    },
    "ppo": lambda i: {"messages": turns(f"What is {i}?", f"The number {i}.")},
    "grpo": lambda i: {"problem": f"What is {i}?", "solution": f"{i}"},
    "segment_ppo": lambda i: {"prompt": f"What is {i}?", "chosen": f"The number {i}.", "rejected": f"No {i}"},
    "rtt": lambda i: {
        "prompt": f"What is {i}?", "rubric": [{"text": "No commas.", "check": {"name": "punctuation:no_comma"}}],
    },
    "critic": lambda i: {"prompt": f"What is {i}?", "answer": f"It is {i}.", "marks": [{"text": "is", "label": -1}]},
    "chains": lambda i: {
        "prompt": f"What is {i}?", "answer": f"It is {i}. Well, well.", "marks": [[0, 2, 1], {"text": "Well, well.", "label": -1}],
    },
    "agent": lambda i: {"question": f"What is {i} times {i}?", "answer": f"{i * i}"},
}  # fmt: skip
TOOLS = '''
def calculate(expression: str) -> str:
    """Calculate with whole numbers.

    Args:
        expression: For example 12 * 7.
    """
    return expression
'''
SEVERAL = {
    "segment_ppo": ["reward_model", "calibrate", "policy", "evaluate"],
    "rtt": ["drafts", "marks", "discriminator", "policy", "evaluate"],
    "critic": ["critic", "policy", "evaluate"],
    "chains": ["chains", "pairs", "sft", "dpo", "evaluate"],
}
"""Kinds whose recipes train several models, and their stages."""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def drafted(
    folder: Path, kind: Any, model: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl", **options: Any
) -> Draft:
    data = write_rows(folder / name, rows)
    limits = {"max_new_tokens": 24} | options
    return draft(Request(kind, data, str(model), folder / "recipe.yaml", gpu=False, **limits))


@pytest.mark.parametrize("kind", list(SHAPES))
def test_a_recipe_of_each_kind_runs_as_it_is_written(tmp_path: Path, steady_model_dir: Path, kind: str) -> None:
    write_rows(tmp_path / "rows.jsonl", [SHAPES[kind](i) for i in range(ROWS)])
    recipe = tmp_path / "recipe.yaml"
    words = ["init", kind, "--data", str(tmp_path / "rows.jsonl"), "--model", str(steady_model_dir), "-o", str(recipe)]
    if kind == "agent":
        (tmp_path / "tools.py").write_text(TOOLS)
        words += ["--tools", f"{tmp_path / 'tools.py'}:calculate"]
    written = CliRunner().invoke(cli.app, [*words, "--max-new-tokens", "24"])
    assert written.exit_code == 0, written.output
    text = recipe.read_text()
    assert len(text.splitlines()) < (80 if kind in SEVERAL else 60)
    for line in written.output.splitlines():
        if line.startswith("- "):
            assert line in " ".join(part.strip(" #") for part in text.splitlines()), "each assumption is a comment, too"
    shown = CliRunner().invoke(cli.app, ["inspect", str(recipe), "-n", "1", "--runs", str(tmp_path / "none")])
    assert (shown.exit_code == 0) == ("fgrl inspect" in written.output), shown.output
    for name in (name for name, stage in load(recipe).stages.items() if hasattr(stage, "train")):
        smaller = load(recipe, [f"stages.{name}.train.batch_size=2"]).stages[name].train
        assert micro_batches_per_step(smaller.batch_size, smaller.micro_batch_size, world=1) == 1
    summary = execute(load(recipe), tmp_path / "runs", Options(limit=4), Console(quiet=True))
    assert summary.exit == 0, summary
    if kind in SEVERAL:
        assert list(load(recipe).stages) == SEVERAL[kind]
        assert list(summary.stages) == SEVERAL[kind]
    if kind != "reward_model":
        metrics = next((tmp_path / "runs" / "stages").glob("evaluate-*")) / "out" / "metrics.json"
        measured = json.loads(metrics.read_text())["metrics"]
        assert {"length", "repetition", "kl"} <= measured.keys()
        if kind == "agent":
            assert {"start", "trained"} <= measured["environment"].keys(), "turns, tools that failed, limits"
        else:
            assert {"start", "trained"} <= measured["perplexity"].keys(), "under the model to start from"
    if kind in ("ppo", "grpo"):
        assert (tmp_path / "rewards.py").is_file()
        assert measured["token_reward"]["trained"]["reward"]["mean"] > 0, "the reward is measured on held-out prompts"
        for model in ("start", "trained"):
            assert measured["perplexity"][model]["nats_per_token"]["mean"] > 0
        assert summary.folder is not None
        (finding, *_others) = conclude(Run(summary.folder)).replies[0].findings
        goal = {"grpo": "Share of answers that match a reference", "ppo": "Goal"}[kind]
        assert finding.text.startswith(f"{goal} [evaluate]: "), "the verdict uses the goal, not the reward"


@pytest.mark.parametrize("name", ["rows.json", "rows.csv", "rows.parquet", "rows.ndjson"])
def test_other_files_are_read_alike(tmp_path: Path, tiny_model_dir: Path, name: str) -> None:
    made = drafted(tmp_path, "sft", tiny_model_dir, [SHAPES["sft"](i) for i in range(ROWS)], name)
    (tmp_path / "recipe.yaml").write_text(made.text)
    stage: Any = load(tmp_path / "recipe.yaml").stages["sft"]
    samples = list(stage.data.read())
    assert len(samples) == ROWS
    assert {sample.prompt for sample in samples} == {f"What is {i}?" for i in range(ROWS)}
    assert all(sample.reference == sample.responses[0].text for sample in samples)


def test_no_held_out_row_is_trained_on(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = [SHAPES["sft"](i) for i in range(ROWS)]
    rows[3]["answer"] = rows[11]["question"] = 7  # no text
    made = drafted(tmp_path, "sft", tiny_model_dir, rows)
    (tmp_path / "recipe.yaml").write_text(made.text)
    assert any(
        line.startswith("2 rows do not fit and are left out (bad_rows: drop); the first: ") for line in made.assumptions
    )
    stages: Any = load(tmp_path / "recipe.yaml").stages
    samples = list(stages["sft"].data.read())
    kept = len(samples) - round(stages["sft"].holdout * len(samples))
    asked = [sample.prompt for sample in stages["evaluate"].prompts.read()]
    assert asked
    assert not {sample.prompt for sample in samples[:kept]} & set(asked)


def test_what_was_found_out_is_reported(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = [{"prompt": f"What is {i % 15}?", "question": "?", "completion": "a b"} for i in range(ROWS)]
    made = drafted(tmp_path, "sft", tiny_model_dir, rows)
    said = "\n".join(made.assumptions)
    assert 'columns: prompt from "prompt", response from "completion"' in said
    assert 'the prompt could also be "question": "prompt" was taken; to change it: columns: {prompt: question}' in said
    assert "4 of 20 rows are held out" in said
    assert "5 rows repeat the prompt of another row" in said
    assert made.text.count("overlap: drop  #") == 2
    assert "the model has a chat template" in said


def test_lengths_become_limits(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = [{"prompt": "word " * (300 if i == 0 else 5), "completion": "word " * 3} for i in range(ROWS)]
    made = drafted(tmp_path, "sft", tiny_model_dir, rows)
    (tmp_path / "recipe.yaml").write_text(made.text)
    stage: Any = load(tmp_path / "recipe.yaml").stages["sft"]
    longest = 300 * 2
    assert stage.max_prompt_tokens % 16 == 0
    assert longest <= stage.max_prompt_tokens <= 1024
    assert stage.max_prompt_tokens < stage.max_tokens


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("sft", {"a": 1, "b": "x", "c": "y"}),
        ("dpo", {"prompt": "x", "completion": "y", "label": True}),
        ("dpo", {"prompt": "x", "chosen": "y"}),
        ("grpo", {"a": "x", "b": "y"}),
        ("sft", {"conversations": [{"from": "human", "value": "x"}]}),
    ],
)
def test_rows_without_fitting_columns_are_refused_with_the_first_row(kind: Any, row: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        detect(kind, [row] * 3, "rows.jsonl")
    said("init", f"{kind} from {row}", str(refused.value))
    assert f"  {next(iter(row))}" in str(refused.value), "the first row is shown"


def test_a_list_of_mappings_is_not_taken_for_turns_from_somebody() -> None:
    with pytest.raises(DataError, match="no columns for sft") as refused:
        detect("sft", [{"messages": [{"role": "user", "content": "x"}]}] * 3, "rows.jsonl")
    assert "from, value" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "row", "columns"),
    [
        ("sft", {"instruction": "x", "output": "y"}, {"prompt": "instruction", "response": "output"}),
        ("sft", {"messages": turns("x", "y")}, {"messages": "messages"}),
        (
            "sft",
            {"prompt": turns("x"), "completion": turns("x", "y")[1:]},
            {"prompt": "prompt", "response": "completion"},
        ),
        ("sft", {"Question": "x", "Answer": "y"}, {"prompt": "Question", "response": "Answer"}),
        ("dpo", {"chosen": "a b", "rejected": "a c"}, {"chosen": "chosen", "rejected": "rejected"}),
        ("grpo", {"prompt": turns("x"), "answer": 3}, {"prompt": "prompt", "meta": ["answer"]}),
        ("ppo", {"words": "x", "n": 1}, {"prompt": "words", "meta": ["n"]}),
        ("ppo", {"chosen": turns("x", "y"), "score": 1}, {"chosen": "chosen", "meta": ["score"]}),
    ],
)
def test_columns_are_recognized(kind: Any, row: dict[str, Any], columns: dict[str, Any]) -> None:
    assert detect(kind, [row] * 3, "rows.jsonl").columns == columns


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "row.jsonl"}, '--data .*row.jsonl: no such file; did you mean "rows.jsonl"'),
        ({"data": "."}, "it is a folder"),
        ({"model": "./tiny-lama"}, "--model ./tiny-lama: no such folder"),
        ({"reward": "rewards.py"}, "wants FILE.py:FUNCTION"),
        ({"reward": "nothing.py:score"}, "no such file"),
        ({"reward": "own.py:scor"}, "own.py has no function 'scor'\n.*did you mean \"score\""),
        ({"reward": "open.py:score"}, "open.py:2:.*'\\(' was never closed"),
        ({"reward": "null.py:score"}, "null.py: .*null bytes"),
        ({"chat_template": "t.jinja"}, "--chat-template t.jinja: no such file"),
    ],
)
def test_wrong_requests(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.jsonl", [SHAPES["grpo"](i) for i in range(ROWS)])
    (tmp_path / "own.py").write_text("def score(completions):\n    return [0.0] * len(completions)\n")
    (tmp_path / "open.py").write_text("from math import pi\ndef score(completions:\n    return [pi]\n")
    (tmp_path / "null.py").write_bytes(b"def score(completions):\n    return 'a\0b'\n")
    asked = {"data": "rows.jsonl", "model": str(tiny_model_dir), **changes}
    template = Path(asked["chat_template"]) if "chat_template" in asked else None
    with pytest.raises((UsageError, registry.Problems), match=message):
        draft(
            Request(
                "grpo", Path(asked["data"]), asked["model"], Path("recipe.yaml"), asked.get("reward"), None, template
            )
        )


def test_a_function_of_spans_gets_an_algorithm_that_uses_them(tmp_path: Path, tiny_model_dir: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def spans(completions, **kwargs) -> list[list[tuple[int, int, float]]]:\n    return [[(0, 1, 1.0)] for _ in completions]\n"
        "def numbers(completions, **kwargs):\n    return [0.0] * len(completions)\n"
    )
    rows = [SHAPES["grpo"](i) for i in range(ROWS)]
    for function, algorithm in (("spans", "rtt_grpo"), ("numbers", "grpo")):
        made = drafted(tmp_path, "grpo", tiny_model_dir, rows, reward=f"{tmp_path / 'own.py'}:{function}")
        (tmp_path / "recipe.yaml").write_text(made.text)
        stage: Any = load(tmp_path / "recipe.yaml").stages["policy"]
        assert registry.name_of(stage.algorithm)[1] == algorithm
        assert stage.warnings() == []
        assert any("the algorithm is rtt_grpo" in line for line in made.assumptions) == (function == "spans")
    (tmp_path / "recipe.yaml").write_text(made.text.replace("own.py:numbers", "own.py:spans"))
    (warning,) = load(tmp_path / "recipe.yaml").stages["policy"].warnings()
    assert warning.startswith("algorithm: grpo trains on the reward of the whole response alone")
    assert "(algorithms that use token rewards: ppo, rtt_grpo" in warning
    for command in ("validate", "plan"):
        said = CliRunner().invoke(cli.app, [command, str(tmp_path / "recipe.yaml")])
        assert said.exit_code == 0
        assert "warning: stages.policy.algorithm: grpo trains on" in said.output


@pytest.mark.parametrize(("kind", "algorithm", "placement"), [("grpo", "grpo", "tokens"), ("ppo", "ppo", "last")])
def test_a_row_pays_the_total_as_one_number(
    kind: Any, algorithm: str, placement: str, tmp_path: Path, tiny_model_dir: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "def spans(completions, **kwargs) -> list[list[tuple[int, int, float]]]:\n    return [[(0, 1, 1.0)] for _ in completions]\n"
    )
    rows = [SHAPES[kind](i) for i in range(ROWS)]
    made = drafted(tmp_path, kind, tiny_model_dir, rows, reward=f"{tmp_path / 'own.py'}:spans")
    (tmp_path / "recipe.yaml").write_text(made.text)
    stage, scalar = (
        load(tmp_path / "recipe.yaml").stages["policy"],
        load(Path(f"{tmp_path}/recipe.yaml::scalar")).stages["policy"],
    )
    assert (registry.name_of(scalar.algorithm)[1], scalar.reward.placement) == (algorithm, placement)
    assert stage.reward.placement == "tokens"


def test_the_limit_of_answers_comes_from_drawn_ones(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [SHAPES["ppo"](i) for i in range(ROWS)]
    cut = drafted(tmp_path, "ppo", tiny_model_dir, rows, max_new_tokens=None)
    (line,) = (line for line in cut.assumptions if line.startswith("8 answers that the model drew have "))
    limit = re.search(r" (\d+) at most: max_new_tokens (\d+)", line)
    assert limit is not None
    assert int(limit[1]) <= int(limit[2]) < int(limit[1]) + 16
    assert cut.text.count(f"max_new_tokens: {limit[2]}, ") == 2, "of training and evaluation"

    def end_after(tokens: int) -> None:
        def draw(model: Any, _drawer: Any, prompts: Any, *_more: Any, **_options: Any) -> list[list[DrawnResponse]]:
            ids = [5] * (tokens - 1) + [min(model.eos_ids)]
            return [[DrawnResponse(ids, "end", text="a")] for _ in prompts]

        monkeypatch.setattr("fgrl.rollouts.draw", draw)

    for tokens, kind, least, most in (
        (33, "ppo", 48, 48),
        (5, "grpo", 16, 16),
        (33, "sft", 48, 192),
        (5, "sft", 32, 192),
    ):
        end_after(tokens)
        row = {"question": "Why?", "answer": "word " * 20} if kind == "sft" else rows[0]
        text = drafted(tmp_path, kind, tiny_model_dir, [row] * ROWS, max_new_tokens=None).text
        (sampling,) = {int(found) for found in re.findall(r"max_new_tokens: (\d+)", text)}
        assert least <= sampling <= most, (tokens, kind)


@pytest.mark.parametrize("kind", ["dpo", "grpo", "segment_ppo", "critic", "chains", "sft"])
def test_an_example_of_a_goal_works_when_its_comment_is_removed(
    kind: Any, tmp_path: Path, tiny_model_dir: Path
) -> None:
    (tmp_path / "own.py").write_text("def score(completions, **kwargs):\n    return [0.0 for _ in completions]\n")
    (tmp_path / "goal.py").write_text("def score(completions, **kwargs):\n    return [0.0 for _ in completions]\n")
    row = {"grpo": {"prompt": "Why?"}, "sft": {"messages": turns("Why?", "Because.")}}.get(kind)
    rows = [row or SHAPES[kind](i) for i in range(ROWS)]
    made = drafted(
        tmp_path, kind, tiny_model_dir, rows, reward=f"{tmp_path / 'own.py'}:score" if kind == "grpo" else None
    )
    assert 'no goal is known from the rows: fill one in where the recipe says "Your goal"' in made.assumptions
    for name in made.prompts:
        (tmp_path / name).write_text(shipped.prompt(name))
    for example in ("rule", "function"):
        (tmp_path / "recipe.yaml").write_text(made.text.replace(f"# - {{name: {example}, ", f"- {{name: {example}, "))
        stage: Any = load(tmp_path / "recipe.yaml").stages["evaluate"]
        assert registry.name_of(stage.metrics[0])[1] == example


def test_a_placeholder_comes_with_a_goal(tmp_path: Path, tiny_model_dir: Path) -> None:
    made = drafted(tmp_path, "ppo", tiny_model_dir, [{"prompt": "Why do birds sing?"}] * ROWS)
    for path, text in made.files.items():
        path.write_text(text)
    (tmp_path / "recipe.yaml").write_text(made.text)
    names: dict[str, Any] = {}
    exec((tmp_path / "rewards.py").read_text(), names)
    said = ["Birds sing to be heard.", "It is nice"]
    assert names["score"](said) == [2.0, 1.0]
    assert names["goal"](said, ["Why do birds sing?"] * 2) == [1.0, 0.0]
    goal = load(tmp_path / "recipe.yaml").data["stages"]["evaluate"]["metrics"][0]
    assert goal["name"] == "function"
    assert goal["better"] == "higher"


def test_limits_are_not_guessed(tmp_path: Path) -> None:
    """Without the tokenizer nobody knows how long the prompts are."""
    model: Any = "nobody/there-is-no-such-model"
    rows = {kind: [SHAPES[kind](i) for i in range(ROWS)] for kind in ("grpo", "sft")}
    with pytest.raises(UsageError, match=r"cannot be loaded.*set limits yourself: --max-prompt-tokens N$"):
        drafted(tmp_path, "grpo", model, rows["grpo"])
    with pytest.raises(UsageError, match=r"--max-prompt-tokens N and --max-tokens N"):
        drafted(tmp_path, "sft", model, rows["sft"], max_prompt_tokens=77)
    made = drafted(tmp_path, "grpo", model, rows["grpo"], max_prompt_tokens=77, max_new_tokens=None)
    assert "max_new_tokens: 192, max_prompt_tokens: 77" in made.text
    assert any("none was drawn to see how long they are" in line for line in made.assumptions)
    text = drafted(tmp_path, "sft", model, rows["sft"], max_prompt_tokens=77, max_tokens=99).text
    assert "max_prompt_tokens: 77" in text
    assert "max_tokens: 99 " in text


def test_a_data_set_of_the_hub(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.chdir(tmp_path)
    held = datasets.Dataset.from_list([SHAPES["dpo"](i) for i in range(ROWS)])
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda path, *more, **options: asked.append(path) or held)
    words = ["init", "dpo", "--data", "somebody/pairs", "--model", str(tiny_model_dir), "--max-new-tokens", "24"]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert set(asked) == {"somebody/pairs"}
    assert "data: {name: hf, path: somebody/pairs, format: preference, " in (tmp_path / "recipe.yaml").read_text()


def test_a_hub_that_cannot_be_reached(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def unreachable(*_more: Any, **_options: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    with pytest.raises(Unavailable) as refused:
        draft(Request("dpo", Path("somebody/pairs"), str(tiny_model_dir), tmp_path / "recipe.yaml"))
    said("init", "a hub that cannot be reached", str(refused.value))


def test_prompts_that_are_copied_are_named(tmp_path: Path, tiny_model_dir: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["rtt"](i) for i in range(ROWS)])
    words = ["init", "rtt", "--data", str(data), "--model", str(tiny_model_dir), "--max-new-tokens", "24"]
    recipe = tmp_path / "recipe.yaml"
    done = CliRunner().invoke(cli.app, [*words, "-o", str(recipe)])
    copied = {path.name for path in tmp_path.iterdir()} - {"rows.jsonl", "recipe.yaml"}
    assert copied == {"relevance.txt"}
    assert all(f"{tmp_path / name}: a prompt that the recipe names" in done.output for name in copied)


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_fields_that_are_not_separated_by_commas(tmp_path: Path, tiny_model_dir: Path, sign: str) -> None:
    rows = "".join(f"What, {i}?{sign}The number {i}.\n" for i in range(ROWS))
    (tmp_path / "rows.csv").write_text(f"question{sign}answer\n{rows}")
    made = draft(
        Request("sft", tmp_path / "rows.csv", str(tiny_model_dir), tmp_path / "recipe.yaml", max_new_tokens=24)
    )
    (tmp_path / "recipe.yaml").write_text(made.text)
    stage: Any = load(tmp_path / "recipe.yaml").stages["sft"]
    assert {sample.prompt for sample in stage.data.read()} == {f"What, {i}?" for i in range(ROWS)}


def test_an_existing_file_is_not_overwritten(tmp_path: Path, tiny_model_dir: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["sft"](i) for i in range(ROWS)])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("mine")
    words = ["init", "sft", "--data", str(data), "--model", str(tiny_model_dir), "-o", str(recipe)]
    refused = CliRunner().invoke(cli.app, words)
    assert isinstance(refused.exception, UsageError)
    assert recipe.read_text() == "mine"
    assert CliRunner().invoke(cli.app, [*words, "--force", "--json"]).exit_code == 0
    assert recipe.read_text() != "mine"
    (tmp_path / "rewards.py").write_text("def mine(completions): ...\n")
    with pytest.raises(
        UsageError, match=r"rewards.py is already there: name its function, as in --reward rewards.py:score"
    ):
        drafted(tmp_path, "grpo", tiny_model_dir, [SHAPES["grpo"](i) for i in range(ROWS)])


def test_a_system_prompt_and_a_model_beside_the_recipe(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").symlink_to(tiny_model_dir)
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["sft"](i) for i in range(ROWS)])
    recipe = tmp_path / "recipes" / "sft.yaml"
    made = draft(Request("sft", data, "model", recipe, system="Be brief.", gpu=False))
    recipe.write_text(made.text)
    assert "path: ../rows.jsonl" in made.text
    monkeypatch.chdir("/")
    stage: Any = load(recipe).stages["sft"]
    assert next(iter(stage.data.read())).prompt[0].content == "Be brief."
    assert Path(stage.model.base) == tiny_model_dir


@pytest.mark.parametrize("gpu", [False, True])
def test_a_recipe_for_a_gpu_names_the_engine_that_is_for_one(gpu: bool, tmp_path: Path, tiny_model_dir: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["grpo"](i) for i in range(ROWS)])
    recipe = tmp_path / "recipe.yaml"
    made = draft(Request("grpo", data, str(tiny_model_dir), recipe, gpu=gpu, max_new_tokens=24))
    for file, text in made.files.items():
        file.write_text(text)
    recipe.write_text(made.text.replace("# engine: paged", "engine: paged"))
    stage: Any = load(recipe).stages["policy"]
    assert registry.name_of(stage.rollout.engine)[1] == ("paged" if gpu else "hf")


@pytest.mark.parametrize("system", ["Answer in ${vars.language}.", "${", "a \\${b} c ${d"])
def test_a_system_prompt_is_taken_as_it_is(system: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    made = drafted(tmp_path, "sft", tiny_model_dir, [SHAPES["sft"](i) for i in range(ROWS)], system=system)
    (tmp_path / "made.yaml").write_text(made.text)
    stage: Any = load(tmp_path / "made.yaml").stages["sft"]
    assert next(iter(stage.data.read())).prompt[0].content == system


def test_inspect_shows_the_system_prompt(tmp_path: Path, tiny_model_dir: Path) -> None:
    made = drafted(tmp_path, "sft", tiny_model_dir, [SHAPES["sft"](i) for i in range(ROWS)], system="Be brief.")
    (tmp_path / "recipe.yaml").write_text(made.text)
    stage = load(tmp_path / "recipe.yaml").stages["sft"]
    with scratch_run("sft", cache=tmp_path, seed=0) as run:
        shown = next(iter(stage.inspect(run, 1)))
    assert "".join(shown.tokens).count("Be brief.") == 1


@pytest.mark.parametrize(
    "value",
    [
        "rows.jsonl",
        "a b",
        "null",
        "no",
        "3",
        "x: y",
        "rewards.py:score",
        "#a",
        "{a}",
        'q"q',
        "über",
        "",
        "C:x",
        "1e5",
        "3e-7",
        "0o17",
        "two\nlines",
        [1, "a"],
    ],
)
def test_values_read_back_as_they_were(tmp_path: Path, value: Any) -> None:
    from fgrl.registry.tree import Text, parse

    tree = parse(Text(f"a: {{b: {flow(value)}}}\n", "here"))  # type: ignore[call-arg]
    assert tree[0].plain() == {"a": {"b": value}}  # type: ignore[index,union-attr]


def test_the_kinds_of_the_command_are_those_of_the_room() -> None:
    from fgrl.commands.starting import KINDS
    from fgrl.exchange.starting import KINDS as known

    assert known == KINDS
    assert "reader" in registry.kinds()


@pytest.mark.parametrize(
    ("kind", "row", "columns", "read"),
    [
        ("dpo", {"q": "x", "good_answer": "y", "bad_answer": "z"}, "prompt=q,chosen=good_answer,rejected=bad_answer",
         {"prompt": "q", "chosen": "good_answer", "rejected": "bad_answer"}),
        ("ppo", {"q": "x", "prompt": "y"}, "prompt=q", {"prompt": "q", "meta": ["prompt"]}),
        ("sft", {"prompt": "x", "talk": turns("x", "y")}, "messages=talk", {"messages": "talk"}),
        ("rtt", {"q": "x", "wishes": ["Be brief."], "rubric": 1}, "prompt=q,rubric=wishes", {"prompt": "q", "rubric": "wishes"}),
    ],
)  # fmt: skip
def test_columns_that_are_given_are_not_guessed(kind: Any, row: Any, columns: str, read: dict[str, Any]) -> None:
    given = dict(word.split("=") for word in columns.split(","))
    assert detect(kind, [row] * 3, "rows.jsonl", given).columns == read


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("promt=question", 'no role "promt"; did you mean "prompt"'),
        ("prompt=qestion", 'no column "qestion"; did you mean "question"'),
        ("prompt", "wants ROLE=COLUMN, as in prompt=question; got prompt"),
    ],
)
def test_wrong_columns(tmp_path: Path, tiny_model_dir: Path, columns: str, message: str) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [SHAPES["sft"](i) for i in range(ROWS)])
    words = ["init", "sft", "--data", str(data), "--model", str(tiny_model_dir), "--columns", columns]
    refused = CliRunner().invoke(cli.app, [*words, "-o", str(tmp_path / "recipe.yaml")])
    assert message in str(refused.exception or refused.output)
    assert not (tmp_path / "recipe.yaml").exists()


def test_what_no_program_decides_is_asked_of_a_teacher(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = {
        "rtt": [{"prompt": f"What is {i}?", "rubric": ["Be brief.", "Be kind."]} for i in range(ROWS)],
        "critic": [{"prompt": f"What is {i}?"} for i in range(ROWS)],
    }
    for kind, stages in (("rtt", SEVERAL["rtt"]), ("critic", ["drafts", "annotated", *SEVERAL["critic"]])):
        made = drafted(tmp_path, kind, tiny_model_dir, rows[kind])
        (tmp_path / "recipe.yaml").write_text(made.text)
        for name in made.prompts:
            (tmp_path / name).write_text(shipped.prompt(name))
        assert any("vars.teacher is a language model" in line for line in made.assumptions)
        assert list(load(tmp_path / "recipe.yaml").stages) == stages


def test_chains_need_a_disliked_passage(tmp_path: Path, tiny_model_dir: Path) -> None:
    rows = [{**SHAPES["chains"](i), "marks": [[0, 2, 1]]} for i in range(ROWS)]
    with pytest.raises(DataError, match="no answer has a marked passage with a label below 0"):
        drafted(tmp_path, "chains", tiny_model_dir, rows)


def test_a_sample_of_a_page_needs_no_columns(tmp_path: Path, tiny_model_dir: Path) -> None:
    response = {"text": "It is. Well, well.", "annotations": [{"spans": [{"start": 7, "end": 18, "label": -1}]}]}
    rows = [{"id": str(i), "prompt": f"What is {i}?", "responses": [response]} for i in range(ROWS)]
    (tmp_path / "recipe.yaml").write_text(drafted(tmp_path, "chains", tiny_model_dir, rows).text)
    stage: Any = load(tmp_path / "recipe.yaml").stages["chains"]
    assert len(list(stage.data.read())) == ROWS - 4, "four are held out"


def test_a_reward_that_needs_a_column_that_the_rows_do_not_have(tmp_path: Path, tiny_model_dir: Path) -> None:
    (tmp_path / "own.py").write_text("def score(completions, difficulty, **columns):\n    return difficulty\n")
    rows = [SHAPES["grpo"](i) for i in range(ROWS)]
    with pytest.raises(UserCodeError, match="difficulty"):
        drafted(tmp_path, "grpo", tiny_model_dir, rows, reward=f"{tmp_path / 'own.py'}:score")
