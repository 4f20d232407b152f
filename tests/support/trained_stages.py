"""Folders of finished stages with tiny models in them, as `fgrl run` leaves them, without a training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from fgrl import models
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.runs.records import StageRecord
from fgrl.runs.stage import Stage, files_of

LORA = LoraSpec(r=4, alpha=8)
NUMBER = {"mean": 0.553, "low": 0.44, "high": 0.66, "n": 64}


def stage(
    runs: Path, name: str, component: str, settings: Mapping[str, Any], *, makes: str, upstream: Mapping[str, Path] | None = None,
    identity: Mapping[str, Any] | None = None, summary: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """The folder of a stage whose product the caller writes into `out`; `finish` makes it a finished one."""
    key = hashlib.sha256(f"{name} {component} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:16]
    folder = runs / "stages" / f"{name}-{key}"
    (folder / "out").mkdir(parents=True)
    whole = {"seed": 3, "stages": {name: {"name": component, **settings}}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    record = {
        "name": name, "key": key, "component": component, "makes": makes, "recipe": "tiny", "made": "2026-05-01T09:30:00Z",
        "seconds": 1.0, "upstream": {other: folder.name.rpartition("-")[2] for other, folder in (upstream or {}).items()},
        "summary": dict(summary or {}), "identity": {"format": 2, "seed": 3, "settings": identity or {}, "data": {"prompts": {"sha256": "d" * 64}}},
        "versions": {"fgrl": "0.2.0", "torch": "2.9"},
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(record))
    return folder


def finish(folder: Path) -> Path:
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").unlink()
    Stage(folder).finish(StageRecord(**record, files=files_of(folder / "out")))
    return folder


def stirred(model: Any, size: float = 0.1, seed: int = 1) -> Any:
    """The model with what it trains moved away from its start."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and ("lora_B" in name or not model.adapted):
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * size)
    return model


def train(runs: Path, name: str, base: Path | str, *, head: str = "lm", lora: LoraSpec | None = LORA, about: Any = None,
          upstream: Mapping[str, Path] | None = None, settings: Mapping[str, Any] | None = None, size: float = 0.1, **spec: Any) -> Path:  # fmt: skip
    """A finished stage whose product is a model that was moved away from `base`."""
    named = f"${{out:{next(iter(upstream))}}}" if upstream else str(base)
    component = "rl" if head == "lm" else "finetune"
    algorithm = {"name": "grpo"} if head == "lm" else {"name": "bradley_terry"}
    whole = {"model": {"base": named, **spec}, "algorithm": algorithm, **(settings or {})}
    identity = {
        "prompts": {"name": "hf", "path": "owner/prompts", "config": None, "split": "train[:10]", "revision": "abc123", "files": []},
        "rows": {"sha256": "f" * 64},
    }  # fmt: skip
    whole |= {
        "prompts": {"name": "hf", "path": "owner/prompts"},
        "rows": str(runs.parent / "secret place" / "rows.jsonl"),
    }
    folder = stage(
        runs, name, component, whole, makes="Checkpoint", upstream=upstream, identity=identity, summary={"iterations": 5, "last response reward": 0.25}
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.load(ModelSpec(base=str(base), lora=lora, **spec), head=head, trainable=True)
    models.save(stirred(model, size), folder / "out", about or {})
    return finish(folder)


def evaluate(runs: Path, policy: Path, name: str = "evaluate") -> Path:
    """A finished evaluation of `policy` beside its base."""
    settings = {"models": {"sft": "smollm2-135m-instruct", "tuned": {"base": "${out:policy}"}}, "baseline": "sft"}
    folder = stage(
        runs, name, "evaluate", settings, makes="Report", upstream={"policy": policy}, summary={"prompts": 64}
    )  # fmt: skip
    numbers = {
        "sft": {"kept": {"mean": 0.172, "low": 0.08, "high": 0.27, "n": 64}},
        "tuned": {"kept": NUMBER},
        "differences": {"tuned": {"kept": {"mean": 0.381, "low": 0.23, "high": 0.52, "n": 64}}},
    }
    (folder / "out" / "metrics.json").write_text(json.dumps({"baseline": "sft", "metrics": {"rule": numbers}}))
    return finish(folder)
