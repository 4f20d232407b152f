"""`sweeps/small/kl_by_cutoff.yaml` with four of its points, and trainings of a few steps."""

from __future__ import annotations

from pathlib import Path

import yaml
from pipeline_helpers import ROOT

FILE = ROOT / "sweeps" / "small" / "kl_by_cutoff.yaml"
SHORT = (
    "stages.start.data.copies=1", "stages.start.train.epochs=1", "stages.reward_model.data.count=48",
    "stages.reward_model.train.epochs=1", "stages.calibrate.data.count=48", "stages.policy.train.iterations=2",
    "stages.policy.rollout.batch_size=12", "stages.policy.train.batch_size=12", "stages.policy.train.micro_batch_size=12",
)  # fmt: skip


def reduced(folder: Path) -> Path:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    *command, place = content["command"]
    content["command"] = [*command, *SHORT, place]
    for parameter in content["parameters"].values():
        parameter["values"] = parameter["values"][::3]
    (folder / "reduced.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder / "reduced.yaml"
