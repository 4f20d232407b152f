"""`docs/tutorial.md` followed from top to bottom: its files, its commands and its last snippet, with a tiny model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_of, lines_of_shell
from typer.testing import CliRunner

from fgrl.cli import app

PAGE = ROOT / "docs" / "tutorial.md"
FETCHED = "hf download"
"""The command that downloads the model; the test puts a folder there instead."""
WITH_RECIPE = ("validate", "plan", "inspect", "run", "table", "report", "export")
SMALL = (
    "stages.policy.rollout.batch_size=4", "stages.policy.rollout.per_prompt=2", "stages.policy.train.iterations=1",
    "stages.policy.train.batch_size=4", "stages.policy.train.micro_batch_size=4", "stages.policy.model.dtype=float32",
    "stages.policy.rollout.sampling.max_new_tokens=6", "stages.evaluate.sampling.max_new_tokens=6",
    "stages.evaluate.prompts.limit=3", "stages.evaluate.models.start.dtype=float32",
)  # fmt: skip


def follow(block: Block, model: Path, small: tuple[str, ...], said: list[str]) -> None:
    """Save a named file, run commands, or run Python."""
    if named := re.match(r"# (\w+\.py)\n", block.text):
        Path(named[1]).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        names: dict[str, object] = {}
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)
        turns = names["turns"]
        assert isinstance(turns, list)
        assert [turn["role"] for turn in turns] == ["user", "assistant"]
    elif block.language == "sh":
        for line in lines_of_shell(block.text):
            command(line, model, small, said)


def command(line: str, model: Path, small: tuple[str, ...], said: list[str]) -> None:
    program, *words = shlex.split(line)
    if line.startswith(FETCHED):
        Path(words[-1]).symlink_to(model)
    elif program == "python":
        exec(compile(Path(words[0]).read_text(encoding="utf-8"), words[0], "exec", dont_inherit=True), {})
    else:
        assert program == "fgrl", line
        done = CliRunner().invoke(app, [*words, *(small if words[0] in WITH_RECIPE else ())])
        assert done.exit_code == 0, (line, done.output, done.exception)
        said.append(done.output)


def whole(folder: Path, model: Path, small: tuple[str, ...]) -> None:
    said: list[str] = []
    found = blocks_of(PAGE)
    for block in found:
        follow(block, model, small, said)
    assert len(said) == sum(
        line.startswith("fgrl") for block in found if block.language == "sh" for line in lines_of_shell(block.text)
    )
    assert len((folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()) == 200
    assert any("token_reward" in text for text in said), "the evaluation measures the reward"
    assert any("report.html" in text for text in said)
    assert (folder / "my-policy" / "model.safetensors").is_file()


def test_the_tutorial_with_a_tiny_model(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole(tmp_path, tiny_model_dir, SMALL)


@pytest.mark.evidence
def test_the_tutorial_as_it_stands(tmp_path: Path, smollm2_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole(tmp_path, smollm2_dir, ())
