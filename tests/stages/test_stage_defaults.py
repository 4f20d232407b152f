"""What a stage says of itself reaches the pipeline: devices, processes, samples to look at, passes over a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch

from fgrl.base.errors import Unavailable, UsageError
from fgrl.components.algorithms.ppo import PPO
from fgrl.experiments import pipeline, recipe
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.stages.finetune import FinetuneStage
from fgrl.experiments.stages.rl import RLStage
from fgrl.kinds import Inspectable, OnlineAlgorithm, Stage
from fgrl.kinds.specs import ModelSpec
from fgrl.library import actions
from fgrl.training.trainer import OfflineSettings
from fgrl.types import Stats


class Plain(Stage):
    makes = Stats

    def run(self, run: Any) -> None: ...


class Shown(Plain):
    def inspect(self, run: Any, count: int) -> Any:
        return iter(())


def test_a_stage_that_says_nothing() -> None:
    assert (Plain().processes(), Plain().accelerator(), Plain().makes_model()) == (1, "auto", None)
    assert not isinstance(Plain(), Inspectable)
    assert isinstance(Shown(), Inspectable)


def test_an_online_algorithm_passes_once_over_a_rollout() -> None:
    class Mine(OnlineAlgorithm):
        def advantages(self, rollout: Any, rewards: Any) -> Any: ...
        def loss(self, model: Any, batch: Any) -> Any: ...

    assert Mine().epochs == PPO().epochs == 1
    assert Mine(epochs=2).epochs == 2


@pytest.mark.parametrize(
    ("there", "wanted", "device"),
    [
        (True, "auto", "cuda:3"),
        (True, "gpu", "cuda:3"),
        (True, "cpu", "cpu"),
        (False, "auto", "cpu"),
        (False, "cpu", "cpu"),
    ],
)
def test_the_settings_decide_where_models_live(
    there: bool, wanted: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert str(Run("test", tmp_path, cache=tmp_path, accelerator=wanted).device) == device


@pytest.mark.parametrize("accelerator", ["cpu", "gpu", "auto"])
@pytest.mark.parametrize(("stage", "kind"), [("reward_model", FinetuneStage), ("policy", RLStage)])
def test_the_pipeline_hands_them_on(
    stage: str,
    kind: type[Stage],
    accelerator: str,
    tmp_path: Path,
    tiny_model_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a GPU in sight, `accelerator: cpu` keeps the frozen models of the stage off it, too."""
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(kind, "run", lambda self, run: seen.append(str(run.device)))
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    alone = [f"stages.{name}=null" for name in ("reward_model", "calibrate", "policy", "evaluate") if name != stage]
    if stage == "policy":
        alone += ["stages.policy.reward.model=${vars.base}", "stages.policy.reward.segmenter=token"]
        alone += ["stages.policy.reward.normalizer=null"]
    loaded = recipe.load(path, [*alone, f"stages.{stage}.train.accelerator={accelerator}"])
    assert pipeline.execute(loaded, tmp_path / "runs").exit == 0
    assert seen == ["cpu" if accelerator == "cpu" else "cuda:0"]


def test_a_frozen_model_stays_on_the_cpu(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    run = Run("test", tmp_path, cache=tmp_path, accelerator="cpu")
    assert run.model(ModelSpec(base=str(tiny_model_dir))).device == torch.device("cpu")


def test_a_gpu_that_is_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match=r"train\.accelerator is gpu"):
        OfflineSettings(lr=1e-3, batch_size=1, accelerator="gpu").check_machine()


def test_inspect_offers_the_stages_that_show_samples(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    plan = pipeline.plan(recipe.load(path), tmp_path / "runs")
    assert actions._inspectable(plan, None).name == "reward_model"
    with pytest.raises(
        UsageError, match="evaluate has no samples to show; these have: reward_model, calibrate, policy"
    ):
        actions._inspectable(plan, "evaluate")
