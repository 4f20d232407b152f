"""The small recipe of span feedback, from the shipped annotations to the report: on the tiny random model, and as evidence on SmolLM2."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from test_recipes import ADDRESSES
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.planning import Options
from fgrl.experiments.recipe import Recipe, load
from fgrl.types import Pairs, Report, Samples

LOSSES = ["dpo", "dpop", "apo_zero", "apo_down"]
MODELS = ["base", "sft", "ab", "first_edit", "full_rewrite", "stepwise_ds", "stepwise"]
REDUCED = [
    "vars.sampling.max_new_tokens=12", "vars.longest_prompt=300", "vars.longest=900", "vars.sft_model.lora={r: 2, last_blocks: 1}",
    "vars.aligned_model.lora={r: 2, last_blocks: 1}", "vars.sft_train.max_steps=1", "vars.align_train.max_steps=2",
    "vars.test_prompts.data.limit=3", "vars.validation_prompts.data.limit=2",
]  # fmt: skip
"""Little to do; nothing else of the recipe is changed."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("span-chains") / "runs"


def reduced(name: str, model_dir: Path) -> Recipe:
    return load(ADDRESSES[name], [f"vars.llm={model_dir}", *REDUCED])


def folders(recipe: Recipe, runs: Path) -> dict[str, Path]:
    return {stage.name: stage.dir for stage in plan(recipe, runs).stages}


def test_from_annotations_to_the_report(tiny_model_dir: Path, runs: Path) -> None:
    recipe = reduced("small/span_chains", tiny_model_dir)
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    made = folders(recipe, runs)
    # every chain of the rule passes the check, and each step addresses one disliked span
    chains = list(Samples(made["chains"] / "out").read())
    assert len(chains) == 60
    for chain in chains:
        disliked = [span for span in chain.responses[0].spans if span.label < 0]
        assert sorted(span.answered_by for span in disliked) == list(range(1, len(chain.responses)))
        assert chain.chosen == len(chain.responses) - 1
    pairs = list(Pairs(made["pairs"] / "out").read())
    assert len(pairs) == sum(len(chain.responses) - 1 for chain in chains) == 135
    # the chosen answers' log-probability is in the log of every loss, the same at the first step
    logs = {loss: read_log(made[loss] / "log.jsonl") for loss in LOSSES}
    assert all(math.isfinite(row["logp_chosen"]) for log in logs.values() for row in log)
    assert len({log[0]["logp_chosen"] for log in logs.values()}) == 1
    assert logs["dpo"][0]["loss"] == pytest.approx(math.log(2))
    # the models in one table, and on the page
    rated = Report(made["evaluate"] / "out").read()["metrics"]["elo_by_rule"]
    assert set(rated) >= {"base", "sft", *LOSSES}
    page = summary.report.read_text(encoding="utf-8")
    assert page.count('class="exchange chain"') == 6
    assert re.search(r'<h3 title="logp_chosen">[^<]+ <small>4 trainings</small></h3>', page)


def test_one_command_draws_the_curve_of_every_loss(tiny_model_dir: Path, runs: Path, tmp_path: Path) -> None:
    recipe = reduced("small/span_chains", tiny_model_dir)
    assert execute(recipe, runs).exit == 0
    folder = max((runs / "small-span_chains").iterdir())
    words = ["curves", str(folder), "--metric", "logp_chosen", "--stage", "*", "--out", str(tmp_path / "logp")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    head = result.output.splitlines()[0]
    assert all(loss in head for loss in LOSSES)
    assert (tmp_path / "logp.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("row", "pairs"), [("ab", 31), ("first_edit", 60), ("full_rewrite", 60), ("stepwise_ds", 64), ("stepwise", 135)]
)
def test_the_pairs_of_each_row(row: str, pairs: int, tiny_model_dir: Path, runs: Path) -> None:
    recipe = reduced(f"small/span_chains_{row}", tiny_model_dir)
    assert execute(recipe, runs, Options(only=["chains", "pairs"] if row != "ab" else ["pairs"])).exit == 0
    made = list(Pairs(folders(recipe, runs)["pairs"] / "out").read())
    assert len(made) == pairs
    assert all(pair.chosen != pair.rejected for pair in made)


@pytest.mark.smollm2
@pytest.mark.evidence
def test_all_seven_models_of_table_2(tmp_path: Path) -> None:
    """On SmolLM2, with the small recipe's own sizes."""
    recipe = load(ADDRESSES["small/span_chains_table2"])
    summary = execute(recipe, tmp_path / "runs")
    assert summary.exit == 0, summary.error
    rated: dict[str, Any] = Report(folders(recipe, tmp_path / "runs")["evaluate"] / "out").read()["metrics"][
        "elo_by_rule"
    ]
    assert set(MODELS) <= set(rated)
    means = {model: rated[model]["rating"]["mean"] for model in MODELS}
    assert sum(means.values()) / len(means) == pytest.approx(1500, abs=1)
    print({model: round(mean) for model, mean in means.items()})


@pytest.mark.smollm2
@pytest.mark.evidence
def test_smollm2_rewrites_its_own_responses(tmp_path: Path) -> None:
    """A model of this size seldom keeps the tags: the share of chains that pass is measured, and failed ones are kept."""
    recipe = load(ADDRESSES["small/span_chains_one_step_per_call"])
    runs = tmp_path / "runs"
    summary = execute(recipe, runs, Options(only=["chains"]))
    assert summary.exit == 0, summary.error
    folder = folders(recipe, runs)["chains"] / "out"
    kept, failed = (
        len(file.read_text(encoding="utf-8").splitlines()) if (file := folder / name).exists() else 0
        for name in ("samples.jsonl", "failed.jsonl")
    )
    print(f"{kept} chains pass, {failed} fail")
    assert kept + failed == 60
