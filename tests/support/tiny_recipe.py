"""A small copy of a segment recipe: reward model, calibration, policy, evaluation, on the tiny random model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conftest import CORPUS

from fgrl.experiments import recipe
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.run import Run

SENTENCES = [part.strip() for line in CORPUS for part in line.replace(";", ",").split(",") if part.strip()]

STAGES = """
about: "A reward model, its calibration, a policy and its evaluation, in seconds."
seed: 3
vars: {{base: {base}, dropout: 0.1, devices: 1, strategy: auto}}
stages:
  reward_model:
    name: finetune
    data: {{name: jsonl, path: pairs.jsonl, format: preference}}
    model: {{base: "${{vars.base}}", lora: {{r: 4, alpha: 8, dropout: "${{vars.dropout}}"}}}}
    algorithm: {{name: bradley_terry, segmenter: {{name: entropy, cutoff: 2.0}}}}
    max_prompt_tokens: 48
    max_tokens: 96
    holdout: 0.2
    train: {{lr: 1e-2, batch_size: 7, micro_batch_size: 3, epochs: 2, checkpoint_every: 2, accelerator: cpu,
            devices: "${{vars.devices}}", strategy: "${{vars.strategy}}"}}
  calibrate:
    name: calibrate
    data: {{name: jsonl, path: pairs.jsonl, format: preference}}
    model: "${{vars.base}}"
    reward: {{name: segment_rm, model: "${{out:reward_model}}"}}
    normalizer: location
    max_prompt_tokens: 48
    max_tokens: 96
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: "${{vars.base}}", lora: {{r: 4, alpha: 8, dropout: "${{vars.dropout}}"}}}}
    reward: {{name: segment_rm, model: "${{out:reward_model}}", normalizer: {{name: location, fitted: "${{out:calibrate}}"}}}}
    algorithm: {{name: ppo, kl_coef: 0.05, adaptive_kl: {{target: 0.1, horizon: 40}}, missing_eos_penalty: 1.0}}
    rollout: {{batch_size: 12, sampling: {{max_new_tokens: 10, max_prompt_tokens: 48, batch_size: 12}}}}
    train: {{lr: 1e-2, critic_lr: 2e-2, iterations: 5, batch_size: 6, micro_batch_size: 4, accelerator: cpu,
            devices: "${{vars.devices}}", strategy: "${{vars.strategy}}"}}
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: topics.txt, limit: 4}}
    models: {{sft: {{base: "${{vars.base}}"}}, policy: "${{out:policy}}"}}
    baseline: sft
    metrics: [length, kl]
    sampling: {{max_new_tokens: 8}}
"""


def write(folder: Path, base: Path) -> Path:
    """The recipe with its data in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [
        {"prompt": f"Say: {one}", "chosen": one, "rejected": other[::-1]}
        for one, other in zip(SENTENCES * 2, SENTENCES[3:] + SENTENCES + SENTENCES[:3], strict=True)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    topics = [f"{first} and {second}" for first in ("rivers", "lamps", "birds", "bread") for second in "abcdefg"]
    (folder / "topics.txt").write_text("\n".join(topics), encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(STAGES.format(base=json.dumps(str(base))), encoding="utf-8")
    return path


def alone(path: Path, stage: str, *overrides: str) -> Any:
    """One stage, built, that needs no other: the base itself serves as the reward model."""
    instead = {
        "policy": [
            "stages.policy.reward.model=${vars.base}",
            "stages.policy.reward.segmenter={name: ngram, n: 3}",
            "stages.policy.reward.normalizer=null",
        ],
    }
    dropped = [f"stages.{name}=null" for name in ("reward_model", "calibrate", "policy", "evaluate") if name != stage]
    return recipe.load(path, [*dropped, *instead.get(stage, []), *overrides]).stages[stage]


def a_run(folder: Path, stage: str = "stage", **more: Any) -> Run:
    """A run of a stage, seeded as the pipeline does it."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    run = Run(stage, folder, cache=folder.parent / "cache", seed=3, **more)
    run.seed_libraries()
    return run


def weights(folder: Path) -> dict[str, str]:
    """Hashes of the weight files in a folder."""
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}
    assert files, f"no weights in {folder}"
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def log(folder: Path) -> list[dict[str, Any]]:
    """The log without what a clock says."""
    rows = read_log(folder / "log.jsonl")
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith("seconds/")} for row in rows]


def products(runs: Path, stages: Sequence[str]) -> Mapping[str, dict[str, str]]:
    """Hashes of the weights that stages of a `runs` folder made."""
    return {name: weights(next((runs / "stages").glob(f"{name}-*")) / "out") for name in stages}
