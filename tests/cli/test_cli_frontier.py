"""`fgrl frontier` on folders of runs and on recipes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from frontier_runs import invocation, report
from typer.testing import CliRunner

from fgrl.cli import app


def test_folders_of_runs_are_compared(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number, (coefficient, kl, win) in enumerate([(0.01, 9.0, 0.25), (0.1, 2.0, 0.2)]):
        invocation(runs, "segment", number, coefficient, report(kl, win))
    last = invocation(runs, "bandit", 7, 0.01, report(9.5, 0.2))
    invocation(runs, "bandit", 8, 0.02, None)
    words = ["frontier", str(runs / "segment"), str(last), "--y", "length_adjusted", "--model", "policy",
             "--out", str(tmp_path / "plots" / "kl")]  # fmt: skip
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s{2,}", line.strip()) for line in result.output.splitlines() if "policy" in line]
    assert [line[:-2] for line in lines] == [
        ["*", "segment", "policy", "kl_coef 0.1"], ["*", "segment", "policy", "kl_coef 0.01"], ["bandit", "policy"],
    ]  # fmt: skip
    assert (tmp_path / "plots" / "kl.svg").exists()
    told = json.loads(CliRunner().invoke(app, [*words[:1], str(runs / "bandit"), *words[3:], "--json"]).stdout)
    assert told["not run"] == ["bandit kl_coef 0.02"]
    assert [(point["settings"], point["best"], point["x"]["mean"]) for point in told["points"]] == [
        ("kl_coef 0.01", True, 9.5)
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--y", "wins"], 'no evaluation has a number "wins"'),
        (["--y", "length_adjusted", "--model", "nobody"], "no finished evaluation has both numbers"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from fgrl.cli import main

    folder = invocation(tmp_path / "runs", "segment", 0, 0.01, report(9.0, 0.25))
    with pytest.raises(SystemExit) as left:
        main(["frontier", str(folder), *words, "--out", str(tmp_path / "x")])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_a_recipe_that_has_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fgrl.cli import main

    recipe = Path(__file__).resolve().parents[2] / "recipes" / "quickstart.yaml"
    words = ["--vary", "stages.policy.algorithm.kl_coef=0.1,0.2", "--y", "rule.kept", "--runs", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as left:
        main(["frontier", str(recipe), *words])
    assert left.value.code == 2
    assert "of quickstart kl_coef 0.1, quickstart kl_coef 0.2 has both numbers" in capsys.readouterr().err
