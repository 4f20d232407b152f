"""Tab completion, as the shells ask for it, and recipes that are named without a path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_helpers import environment, fgrl, recipe_file
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.experiments import recipe as recipes

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COUNTING = "{first: {name: counting, steps: 2}, second: {name: counting, source: '${out:first}'}}"


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch):
    def ask(line: str) -> list[str]:
        """What fish would offer behind `line`."""
        asked = {
            "_FGRL_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_ARGS": line,
        }
        done = CliRunner().invoke(app, prog_name="fgrl", env=asked)
        assert done.exit_code == 0, done.output
        return [text.split("\t")[0] for text in done.output.splitlines() if text]

    return ask


@pytest.mark.parametrize(
    ("line", "candidate"),
    [
        ("fgrl cur", "curves"),
        ("fgrl run quick", "quickstart"),
        ("fgrl run small/rtt_r", "small/rtt_rl_csr"),
        (f"fgrl run {RECIPES}/rtt_qwen3.yaml::ao", f"{RECIPES}/rtt_qwen3.yaml::aon"),
        (f"fgrl run {RECIPES}/quicks", f"{RECIPES}/quickstart.yaml"),
        ("fgrl run quickstart stages.pol", "stages.policy."),
        ("fgrl run quickstart stages.policy.algorithm.kl_c", "stages.policy.algorithm.kl_coef="),
        ("fgrl run quickstart stages.policy.train.lr", "stages.policy.train.lr="),
        ("fgrl run quickstart stages.policy.train.", "stages.policy.train.lr="),
        ("fgrl run quickstart stages.evaluate.models.policy.dty", "stages.evaluate.models.policy.dtype="),
        ("fgrl run quickstart stages.policy.alarms.kl.abo", "stages.policy.alarms.kl.above="),
        ("fgrl run quickstart --only poli", "policy"),
        ("fgrl inspect quickstart --stage poli", "policy"),
        ("fgrl table quickstart vars.cut", "vars.cutoff="),
        ("fgrl show gr", "grpo"),
        ("fgrl show rl.roll", "rl.rollout"),
        ("fgrl list seg", "segmenter"),
        ("fgrl run quickstart --onl", "--only"),
    ],
)
def test_candidates(complete, line: str, candidate: str) -> None:
    offered = complete(line)
    assert candidate in offered
    assert all(text.startswith(line.rpartition(" ")[2]) for text in offered)


def test_a_recipe_with_a_mistake_completes_nothing_and_says_nothing(complete, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("about: [\n")
    assert complete(f"fgrl run {broken} sta") == []
    assert complete(f"fgrl run {broken}::") == []


def test_rows_in_bash_which_splits_words_at_colons(tmp_path: Path) -> None:
    words = ["fgrl", "run", str(RECIPES / "rtt_qwen3.yaml"), "::", "ao"]
    asked = {"_FGRL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-m", "fgrl"], env={**environment(), **asked}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["aon"], done.stderr


def test_the_help_names_the_option_that_installs_it() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"], prog_name="fgrl").output


def test_a_shipped_recipe_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipes.by_name("quickstart") == RECIPES / "quickstart.yaml"
    assert recipes.by_name("small/rtt::aon") == Path(f"{RECIPES / 'small' / 'rtt.yaml'}::aon")
    assert recipes.by_name("../quickstart") is None
    assert recipes.by_name("/quickstart") is None
    assert recipes.by_name("rtt") is None
    assert recipes.similar("rtt") == "small/rtt"
    assert recipes.similar("quickstat") == "quickstart"
    mine = tmp_path / "recipes"
    mine.mkdir()
    (mine / "quickstart.yaml").write_text('about: "Mine."\n')
    assert recipes.by_name("quickstart") == Path("recipes/quickstart.yaml"), "the folder `recipes` here comes first"


def test_commands_take_names_and_suggest_near_ones(tmp_path: Path) -> None:
    done = fgrl("plan", "quickstart", cwd=tmp_path)
    assert done.stdout.startswith("quickstart: 6 stages"), done.stderr
    near = fgrl("run", "rtt", cwd=tmp_path)
    assert near.returncode == 2
    assert 'did you mean "small/rtt"' in near.stderr


def test_set_is_the_same_as_a_bare_override(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, COUNTING)

    def key(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["plan", *arguments, "--runs", str(tmp_path / "runs")], prog_name="fgrl")
        assert done.exit_code == 0, done.output
        return done.output

    bare = key(str(recipe), "stages.first.steps=5", "seed=3")
    assert key(str(recipe), "--set", "stages.first.steps=5", "--set=seed=3") == bare
    assert key("--set", "seed=3", str(recipe), "stages.first.steps=5") == bare
    assert key(str(recipe), "--seed=3", "--set", "stages.first.steps=5") == bare
    assert key(str(recipe)) != bare


def test_set_without_a_value_is_a_mistake(tmp_path: Path) -> None:
    done = fgrl("validate", recipe_file(tmp_path, COUNTING), "--set", "seed", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.b=value" in done.stderr
