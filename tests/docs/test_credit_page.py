"""`docs/how-to/credit.md` followed from the idea to the table of results, with a tiny model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of, lines_of_shell
from scratch_registry import scratch_imports
from typer.testing import CliRunner

from fgrl.cli import app

SMALL = (
    "vars.questions.limit=4", "vars.held_out.limit=2", "stages.policy.model.dtype=float32",
    "stages.policy.rollout.batch_size=4", "stages.policy.rollout.per_prompt=2", "stages.policy.train.iterations=1",
    "stages.policy.train.batch_size=4", "stages.policy.train.micro_batch_size=4",
    "stages.policy.rollout.sampling.max_new_tokens=5", "stages.evaluate.sampling.max_new_tokens=4",
    "stages.evaluate.models.start.dtype=float32",
)  # fmt: skip


def test_the_page_leads_from_an_idea_to_a_table(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("examples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    said: dict[str, str] = {}
    for block in blocks_of(ROOT / "docs" / "how-to" / "credit.md"):
        if named := re.match(r"# (\w+\.(?:py|yaml))\n", block.text):
            (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
            continue
        for line in lines_of_shell(block.text):
            _program, *words = shlex.split(line.replace("--seeds 0,1,2", "--seeds 0"))
            with scratch_imports():
                done = CliRunner().invoke(app, [*words, *SMALL, f"vars.base={tiny_model_dir}"])
            assert done.exit_code == 0, (line, done.output, done.exception)
            said[words[0]] = said.get(words[0], "") + done.output
    assert list(said) == ["validate", "plan", "inspect", "compare"]
    # what is trained on: the half of all tokens, at least, that is most uncertain
    drawn = [
        tuple(map(int, numbers)) for numbers in re.findall(r"advantage +of (\d+) of (\d+) tokens", said["inspect"])
    ]
    assert drawn
    assert sum(trained for trained, _all in drawn) < sum(every for _trained, every in drawn)
    # the tables have a column for each recipe, and name what differs
    for text in ("grpo", "uncertain_half", "policy.algorithm", "token_reward.answer", "grpo-four_times", "vine"):
        assert text in said["compare"], said["compare"]
