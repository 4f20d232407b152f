"""Every number that a training logs is explained on its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_recipe import a_run

import fgrl
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.log import read_log
from fgrl.registry import names
from fgrl.runs.results.metric_names import WORDS

ROOT = Path(fgrl.__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "training-metrics.md"
TRAIN = "{lr: 1e-2, batch_size: 4, micro_batch_size: 4, epochs: 1, accelerator: cpu, warmup: 0.0}"
OFFLINE = f"""
name: finetune
data: {{name: jsonl, path: FILE}}
model: {{base: BASE}}
algorithm: ALGORITHM
max_tokens: 96
holdout: 0.25
train: {TRAIN}
"""
ONLINE = f"""
name: rl
prompts: {{name: jsonl, path: samples.jsonl}}
model: {{base: BASE, lora: {{r: 4, alpha: 8}}}}
reward: {{name: rubric, response: csr, relevance: {{name: oracle}}}}
algorithm: ALGORITHM
token_rewards: TOKEN_REWARDS
rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 8, max_prompt_tokens: 48}}}}
train: {TRAIN.replace("epochs: 1", "iterations: 2")}
"""
ALGORITHMS = {
    "bradley_terry": ("pairs.jsonl, format: preference", "{name: bradley_terry, segmenter: {name: ngram, n: 3}}"),
    "dpo": ("pairs.jsonl, format: preference", "dpo"),
    "sft": ("samples.jsonl", "sft"),
    "token_bce": ("samples.jsonl", f"{{name: token_bce, prompt: {ROOT / 'prompts' / 'relevance.txt'}}}"),
    "ppo": ("", "{name: ppo, kl_coef: 0.1, adaptive_kl: {target: 0.1, horizon: 40}, entropy_coef: 0.01}"),
    "grpo": ("", "{name: grpo, kl_coef: 0.1, kl_in: loss}"),
    "rtt_grpo": ("", "{name: rtt_grpo, kl_coef: 0.1}"),
    "turn_rloo": ("", "turn_rloo"),
}
"""Data and algorithm of a training for each."""


def explained() -> set[str]:
    """The names at the beginning of the page's tables."""
    cells = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def is_explained(name: str) -> bool:
    """True if the page has the name, or a name for the part of a reward, a critic or a criterion that it comes from."""
    return name in explained() or (name.startswith("seconds/") and "seconds/NAME" in explained())


def data(folder: Path) -> None:
    """Pairs; and samples with a criterion, a response and a marked word, which are prompts, too."""
    pairs = [{"prompt": f"Say {n}", "chosen": "the lamp sings", "rejected": "a mill"} for n in range(8)]
    check = {"name": "keywords:letter_frequency", "letter": "m", "let_frequency": 1, "let_relation": "at least"}
    span = {"start": 4, "end": 8, "label": 1}
    samples = [
        {"id": str(n), "prompt": f"Say {n}", "rubric": [{"text": "an m", "check": check}], "chosen": 0,
         "responses": [{"text": "the lamp sings", "annotations": [{"spans": [span]}]}]}
        for n in range(8)
    ]  # fmt: skip
    for name, rows in (("pairs", pairs), ("samples", samples)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_training_logs_is_explained(algorithm: str, tmp_path: Path, steady_model_dir: Path) -> None:
    data(tmp_path)
    file, settings = ALGORITHMS[algorithm]
    text = (OFFLINE if file else ONLINE).replace("FILE", file).replace("ALGORITHM", settings)
    text = text.replace("TOKEN_REWARDS", "null" if algorithm == "grpo" else "{center: batch}")
    text = text.replace("BASE", json.dumps(str(steady_model_dir)))
    path = tmp_path / "r.yaml"
    path.write_text(
        f"about: x\nseed: 1\nstages:\n  training:\n{re.sub('^', '    ', text, flags=re.MULTILINE)}", encoding="utf-8"
    )
    run = a_run(tmp_path / "stage")
    recipe.load(path).stages["training"].run(run)
    logged = {name for row in read_log(run.dir / "log.jsonl") for name in row}
    assert {"step", "loss"} <= logged
    assert {name for name in logged if not is_explained(name)} == set()


def test_every_algorithm_is_trained_here() -> None:
    """Variants of an algorithm for comparison with a release log the same."""
    known = {name for kind in ("offline_algorithm", "online_algorithm") for name in names(kind)}
    assert {name for name in known if not name.startswith(tuple(ALGORITHMS))} == set()


def test_every_curve_of_the_report_is_explained() -> None:
    assert {name for name in WORDS if not is_explained(name)} == set()


def test_what_the_page_explains_has_a_meaning() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert all(len(line.split(" | ")[1].strip()) > 1 for line in rows)
