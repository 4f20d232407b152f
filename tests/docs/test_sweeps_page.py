"""The page "Sweeps": its commands run, from top to bottom."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from pipeline_helpers import ROOT, fgrl

PAGE = ROOT / "docs" / "how-to" / "sweeps.md"


def commands() -> list[list[str]]:
    blocks = PAGE.read_text(encoding="utf-8").split("```\n")[1::2]
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("fgrl ")]


def place(folder: Path) -> None:
    for name in ("recipes", "sweeps"):
        (folder / name).symlink_to(ROOT / name)


def test_the_dry_runs_of_the_page(tmp_path: Path) -> None:
    place(tmp_path)
    dry = [words for words in commands() if "--dry-run" in words]
    said = [fgrl(*words, cwd=tmp_path) for words in dry]
    assert [done.returncode for done in said] == [0, 0], [done.stderr for done in said]
    assert "2 points; 8 stages to run" in said[0].stdout
    assert said[0].stdout.splitlines()[-1].split() == ["2", "1.0", "policy,", "evaluate"]
    assert "16 points; 42 stages to run" in said[1].stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.docs
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    place(tmp_path)
    for words in commands():
        done = fgrl(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    policies = list((tmp_path / "runs" / "stages").glob("policy-*"))
    models = list((tmp_path / "runs" / "stages").glob("reward_model-*"))
    assert (len(models), len(policies)) == (4, 16), "both values of the beginning are in the grid"
    assert len(list((tmp_path / "runs" / "sweeps").glob("*/index.html"))) == 2
