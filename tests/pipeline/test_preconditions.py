"""What is known before the first stage is said before it: nothing is begun, and no model library is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import HUNG
from pipeline_helpers import environment
from typer.testing import CliRunner

from fgrl import cli
from fgrl.base import errors
from fgrl.commands import checking
from fgrl.experiments import pipeline
from fgrl.experiments.pipeline import preconditions
from fgrl.experiments.recipe import load
from fgrl.experiments.recipe.tracking import Wandb
from fgrl.feedback.sandbox import strength

RECIPE = """
about: "Two stages; what the second needs is known before the first."
stages:
  sft:
    name: finetune
    data: {{name: jsonl, path: sft.jsonl, format: sft}}
    model: {{base: {model}, lora: {{r: 2}}}}
    algorithm: sft
    train: {{lr: 1e-3, batch_size: 2, micro_batch_size: 2, max_steps: 1}}
  policy:
    name: rl
    prompts: {{name: jsonl, path: rows.jsonl, format: records}}
    model: {{base: "${{out:sft}}", lora: {{r: 2}}}}
    reward: {{name: rubric}}
    algorithm: grpo
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 4, max_prompt_tokens: 64}}}}
    train: {{lr: 1e-3, iterations: 1, batch_size: 4, micro_batch_size: 4}}
"""
WITHOUT_MODELS = """
import sys
from fgrl.cli import main
try:
    main(sys.argv[1:])
finally:
    loaded = [name for name in ("torch", "transformers", "lightning", "wandb") if name in sys.modules]
    assert not loaded, loaded
"""


def rows(*checks: dict[str, Any]) -> str:
    rubrics = [{"text": f"criterion {number}", "check": check} for number, check in enumerate(checks)]
    return "".join(
        json.dumps({"id": str(number), "prompt": f"Say {number}.", "rubric": [one]}) + "\n"
        for number, one in enumerate(rubrics)
    )


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Path:
    (tmp_path / "sft.jsonl").write_text('{"prompt": "Why?", "response": "So."}\n' * 4)
    (tmp_path / "rows.jsonl").write_text(rows(*[{"name": "punctuation:no_comma"}] * 4))
    (tmp_path / "judge.txt").write_text("[user]\n{criterion} {response}\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(model=tiny_model_dir))
    return tmp_path / "recipe.yaml"


def judged(recipe: Path) -> str:
    client = "{name: openai, model: gpt-4.1-mini, api_key_env: NOT_SET}"
    return f"stages.policy.reward.judge={{name: llm, prompt: {recipe.parent / 'judge.txt'}, client: {client}}}"


def refused(recipe: Path, code: int, *words: str, **variables: str) -> str:
    """What `fgrl run` says that begins nothing and loads no library of models."""
    runs = recipe.parent / "runs"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODELS, "run", str(recipe), *words, "--runs", str(runs)],
        env=environment() | variables, capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert not runs.exists()
    assert done.stdout == ""
    assert done.stderr.count("\nnothing was run") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_wrong_rule_in_the_rows(recipe: Path) -> None:
    (recipe.parent / "rows.jsonl").write_text(
        rows(*[{"name": "punctuation:no_comma"}] * 3, {"name": "punctuation:no_coma"})
    )
    told = refused(recipe, 3)
    assert 'unknown verifier "punctuation:no_coma"' in told
    assert 'did you mean "punctuation:no_comma"?' in told
    assert f"fgrl: data: stages.policy.reward: {recipe.parent / 'rows.jsonl'}:4: sample 3" in told
    assert "a verifier of your own is known once the recipe names its file in `imports`" in told


def test_a_key_that_is_not_set(recipe: Path) -> None:
    told = refused(recipe, 2, judged(recipe))
    assert "fgrl: stages.policy.reward.judge.client: the environment variable NOT_SET is not set" in told


def test_the_engine_vllm_without_vllm(recipe: Path, tmp_path: Path) -> None:
    told = refused(recipe, 2, "stages.policy.rollout.engine=vllm", XDG_CACHE_HOME=str(tmp_path), FGRL_VLLM_PYTHON="")
    assert "stages.policy.rollout.engine: the engine vllm needs an environment with vLLM" in told
    assert "pip install vllm==" in told


def test_four_bits_without_their_package_or_a_gpu(recipe: Path) -> None:
    assert "stages.policy.model: quantize: nf4 needs " in refused(recipe, 2, "stages.policy.model.quantize=nf4")


def test_weights_and_biases_without_a_key(recipe: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install 'fgrl[wandb]'")
    variables = dict.fromkeys(("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"), "") | {"HOME": str(tmp_path)}
    told = refused(recipe, 2, "--wandb", "project", **variables)
    assert told.count("\n") == 2
    assert "`wandb login`" in told
    assert "WANDB_MODE=offline" in told


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"WANDB_API_KEY": "key"}, ""),
        ({"WANDB_MODE": "offline"}, ""),
        ({}, ".netrc"),
        ({}, ".config/wandb/settings"),
    ],
)
def test_weights_and_biases_with_a_key_or_without_need(
    variables: dict[str, str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda module: module)
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.Unavailable, match="wandb login"):
        Wandb(project="p").check_machine()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("machine api.wandb.ai login user password key")
    Wandb(project="p").check_machine()


def test_all_that_is_not_there_is_one_list_for_every_command(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe stays valid on a machine that cannot run it; only wrong rows make it invalid."""
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda module: None)
    words = [str(recipe), judged(recipe), "stages.policy.model.quantize=nf4"]
    places = ["stages.policy.model", "stages.policy.reward.judge.client"]
    validated = CliRunner().invoke(cli.app, ["validate", *words, "--json"])
    planned = CliRunner().invoke(cli.app, ["plan", *words, "--json"])
    assert (validated.exit_code, planned.exit_code) == (0, 0)
    (entry,) = json.loads(validated.stdout)["recipes"]
    assert [text.partition(": ")[0] for text in entry["missing"]] == places
    assert json.loads(planned.stdout)["missing"] == entry["missing"]
    for command in ("validate", "plan"):
        assert CliRunner().invoke(cli.app, [command, *words]).output.count("missing here: stages.policy.") == 2
    with pytest.raises(errors.Unavailable) as refusal:
        pipeline.execute(load(recipe, words[1:]), recipe.parent / "runs")
    assert str(refusal.value) == "\n".join([*entry["missing"], "nothing was run"])


def test_finished_stages_need_nothing(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = pipeline.plan(load(recipe, ["stages.sft.model.quantize=nf4"]), recipe.parent / "runs")
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda module: None)
    with pytest.raises(errors.Unavailable):
        preconditions.check(planned.stages, {})
    preconditions.check(planned.stages[1:], {})


def test_code_in_rows_that_nothing_reads_yet_wants_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path
) -> None:
    """The rows of a package are not read for a plan, but their reader says that they bring code."""
    weak = strength.DetectedSandbox("weak", "a process with limits", "bubblewrap is not installed")
    monkeypatch.setattr(strength, "detect", lambda: weak)
    (tmp_path / "recipe.yaml").write_text(
        f"""
about: "Programs."
stages:
  answers:
    name: evaluate
    prompts: {{name: human_eval}}
    models: {{policy: {tiny_model_dir}}}
    baseline: policy
    metrics: [length, {{name: pass_at_k, k: [1]}}]
    sampling: {{max_new_tokens: 4}}
"""
    )
    (missing,) = preconditions.unmet(load(tmp_path / "recipe.yaml").stages, {}).missing
    assert missing.startswith("stages.answers.prompts.sandbox: code from data runs only in a sandbox")
    allowed = load(tmp_path / "recipe.yaml", ["stages.answers.prompts.sandbox.require=weak"])
    assert preconditions.unmet(allowed.stages, {}).missing == []
    unused = load(tmp_path / "recipe.yaml", ["stages.answers.metrics=[length]"])
    assert preconditions.unmet(unused.stages, {}).missing == []


def test_a_sandbox_that_is_weak_is_missing_for_the_small_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = strength.DetectedSandbox(
        "weak", "a process with limits", "bubblewrap is not installed: apt-get install bubblewrap"
    )
    for place in ("fgrl.feedback.sandbox.detect", "fgrl.feedback.sandbox.strength.detect"):
        monkeypatch.setattr(place, lambda: weak)
    done = CliRunner().invoke(cli.app, ["doctor", "--runs", str(tmp_path)])
    assert done.exit_code == 1
    assert "! code from data runs only in a sandbox; strong is required" in done.output


def test_iterations_beside_epochs_are_not_passed_over_in_silence(recipe: Path) -> None:
    for words, warned in (([], False), (["stages.policy.train.epochs=2"], True)):
        said = CliRunner().invoke(cli.app, ["validate", str(recipe), *words]).output
        assert ("train.epochs: ignored, because train.iterations is set" in said) == warned


def test_calls_that_are_known_later_are_named_in_the_sum() -> None:
    counted = {"calls": 700, "prompt tokens": 1, "completion tokens": 1, "usd": 0.0, "cached": 0}
    line = checking.calls_together([{"calls": counted}, {"calls": {"after": "sft"}}, {"after": "sft"}])
    assert line == "together: calls: at most 700 to make, no charge, and those of 1 stage whose number is not known"
    assert checking.calls_together([{"after": "policy"}]) == ""
