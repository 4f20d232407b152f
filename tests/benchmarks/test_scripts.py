"""Each script of `benchmarks/` runs to its end with its smallest arguments, on a tiny model. What it measures is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import environment

pytestmark = pytest.mark.usefixtures("warm")

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
SMALLEST = {
    "client_connections": "--requests 4 --at-once 2 --latency 0 --rounds 1",
    "client_throughput": "--requests 4 --concurrency 2 --latency 0 --rounds 1",
    "credit_cost": "--base MODEL --iterations 1 --responses 8 --new-tokens 4",
    "critic_overhead": "--base MODEL --iterations 1 --responses 8 --new-tokens 4 --epochs 1 --critic-tokens 4",
    "dpo_vs_trl": "--base MODEL --steps 1 --pairs 2 --micro 2 --prompt 32 --response 16",
    "generate_speed": "--model MODEL --batch 2 --new 2 --repeats 1",
    "gpu": "--device cpu --shapes tiny --rows 2 --new 4 --train-rows 2 --completions 16 --repeats 1",
    "grpo_vs_trl": "--base MODEL --steps 1 --completions 4 --per-prompt 2 --micro 2 --new 2",
    "logprob_memory": "--model MODEL --rows 1 --length 8 --prompt 2 --only train",
    "packing": "--model MODEL --dtype float32 --shapes rtt --shrink 64 --rows 8 --micro 2 --tokens 40 --rounds 1",
    "plans_without_network": "--only recipes/span_chains.yaml",
    "plan_memory": "--cases sample --processes 1",
    "plan_seconds": "--card CARD RUN --least 0",
    "ppo_phases": "--base MODEL --responses 2 --new-tokens 2 --repeats 1",
    "quickstart_curve": "--runs RUNS --figure FOLDER",
    "resume_kills": "RECIPE --kills 1 --folder FOLDER",
    "starters": "--tasks hedges --seeds 0 --model MODEL --folder FOLDER stages.policy.train.iterations=1",
    "shard_loading": "--processes 2 --layers 1",
    "shared_stages": "--model MODEL --processes 1 2 --prompts 6 --new 4 --stages sample",
    "startup": "--times 1 --commands run",
    "strategies": "--strategies ddp --algorithms sft --processes 1 --pieces 1",
    "sweep_search": "--seeds 2 --points 11",
    "turn_credit_bias": "--only turn_rloo --group 2",
    "two_nodes": "--help",
    "vllm_speed": "--model MODEL --shapes 1x2 --repeats 1",
}


def test_all_scripts_are_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(SMALLEST)


def a_finished_run(runs: Path) -> Path:
    """The files of a run of the quickstart that its curve is drawn from."""
    folder = runs / "quickstart" / "20260101T000000Z-0"
    kept = {name: {"kept": {"mean": 0.5, "low": 0.4, "high": 0.6}} for name in ("sft", "policy")}
    for path, value in {
        "summary.json": {"stages": {"policy": {"dir": "policy"}, "evaluate": {"dir": "evaluate"}}},
        "policy/log.jsonl": {"step": 0, "reward": 0.1, "kl": 0.2},
        "evaluate/out/metrics.json": {"baseline": "sft", "metrics": {"rule": kept | {"differences": {}}}},
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(value) + "\n", encoding="utf-8")
    return runs


def a_recorded_run(folder: Path, base: Path) -> Path:
    """The files of a run whose seconds are compared with a plan's."""
    recipe = tiny_recipe.write(folder, base).rename(folder / "recipe.yaml")
    stages = {name: {"done": True, "seconds": 1.0} for name in ("reward_model", "policy")}
    (recipe.parent / "summary.json").write_text(json.dumps({"stages": stages}), encoding="utf-8")
    return recipe.parent


@pytest.mark.parametrize("name", SMALLEST)
def test_a_script_runs(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    places = {"MODEL": tiny_model_dir, "FOLDER": tmp_path / "out"}
    if name == "resume_kills":
        places["RECIPE"] = tiny_recipe.write(tmp_path, tiny_model_dir)
    if name == "plan_seconds":
        places |= {
            "CARD": SCRIPTS.parent / "machines" / "one_h100.yaml",
            "RUN": a_recorded_run(tmp_path, tiny_model_dir),
        }
    if name == "quickstart_curve":
        places["RUNS"] = a_finished_run(tmp_path / "runs")
    arguments = [str(places.get(word, word)) for word in SMALLEST[name].split()]
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
