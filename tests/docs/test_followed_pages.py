"""Pages followed from top to bottom with a tiny model: start from your data, use a trained policy, and the README's first commands."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of, lines_of_shell
from scratch_registry import scratch_imports
from typer.testing import CliRunner, Result

from fgrl.cli import app
from fgrl.experiments.recipe import load

pytestmark = pytest.mark.docs

TRAINED = (
    "stages.policy.rollout.batch_size=4", "stages.policy.rollout.per_prompt=2", "stages.policy.train.iterations=1",
    "stages.policy.train.batch_size=4", "stages.policy.train.micro_batch_size=4", "stages.policy.model.dtype=float32",
    "stages.policy.rollout.sampling.max_new_tokens=6", "stages.evaluate.sampling.max_new_tokens=6",
    "stages.evaluate.prompts.limit=3",
)  # fmt: skip
TUNED = ("stages.sft.train.max_steps=2", "stages.evaluate.sampling.max_new_tokens=6", "stages.evaluate.prompts.limit=3")
RULE = '{name: "length_constraints:number_words", relation: less than, num_words: 4}'
"""Random text satisfies it about as often as not, so that there are pairs."""
QUICK = {
    "sample": ("prompts.limit=12", "per_prompt=4", "sampling.max_new_tokens=12"),
    "finetune": ("train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4"),
    "rl": ("prompts.limit=8", "rollout.batch_size=4", "rollout.sampling.max_new_tokens=12", "train.iterations=2",
           "train.batch_size=4", "train.micro_batch_size=4"),
    "evaluate": ("prompts.limit=4", "sampling.max_new_tokens=12"),
}  # fmt: skip
QUESTION = "Why do birds sing?"


def fgrl(*words: str, typed: str = "") -> Result:
    """A command as from a new process: what an earlier command registered from a file is forgotten."""
    with scratch_imports():
        done = CliRunner().invoke(app, [*words], input=typed)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done


def shell(page: Path, first: str) -> list[str]:
    """The commands of every block from the one that begins with `first`."""
    lines = [
        line for block in blocks_of(page) if block.language in ("", "sh", "bash") for line in lines_of_shell(block.text)
    ]
    start = next(place for place, line in enumerate(lines) if line.startswith(first))
    return lines[start:]


def rows(folder: Path) -> None:
    lines = [{"prompt": f"What is {number}?", "answer": f"a number {number}"} for number in range(40)]
    for name in ("rows.jsonl", "prompts.jsonl"):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def python_of(page: Path, text: str) -> str:
    return next(block.text for block in blocks_of(page) if block.language == "python" and text in block.text)


def test_the_first_commands_of_the_readme(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path)
    (tmp_path / "my-model").symlink_to(tiny_model_dir)
    (tmp_path / "rewards.py").write_text(python_of(ROOT / "README.md", "def score"), encoding="utf-8")
    for line in shell(ROOT / "README.md", "fgrl init")[:4]:
        words = shlex.split(line)[1:]
        fgrl(*words, *(TRAINED if words[0] != "init" else ()))
    assert (tmp_path / "my-policy" / "model.safetensors").is_file()


def test_start_from_your_data(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "how-to" / "start-from-your-data.md"
    monkeypatch.chdir(tmp_path)
    rows(tmp_path)
    (tmp_path / "my-model").symlink_to(tiny_model_dir)
    (tmp_path / "rewards.py").write_text(python_of(page, "def score"), encoding="utf-8")
    supervised, run, rewarded = (shlex.split(line)[1:] for line in shell(page, "fgrl init"))
    fgrl(*supervised)
    fgrl(*run, *TUNED)
    assert list(tmp_path.glob("runs/recipe/*/report.html"))
    (tmp_path / "recipe.yaml").unlink()
    fgrl(*rewarded)
    fgrl("run", "recipe.yaml", *TRAINED)


def test_use_a_policy(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports, the Python block and the chats, after a quickstart with the tiny model. Uploads have tests of their own."""
    page = ROOT / "docs" / "how-to" / "use-a-policy.md"
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "prompts"):
        (tmp_path / name).symlink_to(ROOT / name)
    start = (
        f"vars.sft={tiny_model_dir}", f"vars.rule={RULE}", "vars.lora.r=2", "vars.lora.last_blocks=1",
        "stages.policy.critic.lora.last_blocks=1",
    )  # fmt: skip
    stages = load(Path("recipes/quickstart.yaml"), start).data["stages"]
    small = [
        *start,
        *(f"stages.{name}.{limit}" for name, stage in stages.items() for limit in QUICK.get(stage["name"], ())),
    ]
    fgrl("run", "recipes/quickstart.yaml", *small)
    policy = next(path for path in (tmp_path / "runs" / "stages").iterdir() if path.name.startswith("policy-"))
    done: list[str] = []
    for line in shell(page, "fgrl export"):
        if "--push" in line or line.startswith("hf "):
            continue
        typed, _, command = line.rpartition("| ")
        words = [
            str(tiny_model_dir) if word == "smollm2-135m-instruct" else re.sub(r"^runs/stages/policy-\w+$", os.path.relpath(policy), word)
            for word in shlex.split(command)[1:]
        ]  # fmt: skip
        if words[0] == "export" and Path(words[2]).exists():
            words.append("--force")
        recipe = "recipes/quickstart.yaml" in words[1]
        output = fgrl(*words, *(small if recipe else ()), typed=f"{QUESTION}\n").stdout
        assert words[0] == "export" or output.strip()
        assert not typed or QUESTION in typed
        done.append(words[0])
    assert done == ["export"] * 3 + ["chat"] * 4
    assert (tmp_path / "my-policy" / "model.safetensors").is_file()
    assert (tmp_path / "my-reward" / "model.safetensors").is_file()
    names: dict[str, object] = {}
    exec(compile(python_of(page, "pipeline("), str(page), "exec", dont_inherit=True), names)
