"""Servers get GPUs of their own, or the recipe is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_recipe

from fgrl.base import native
from fgrl.base.errors import Unavailable
from fgrl.components.engines.vllm import VLLM
from fgrl.experiments.recipe import load
from fgrl.rollouts.serving import servers


def engine(beside: int, **options: Any) -> VLLM:
    made = VLLM(**options)
    made._beside = beside
    return made


@pytest.mark.parametrize(
    ("visible", "trained", "options", "expected"),
    [
        (8, 4, {"copies": 4}, [4, 5, 6, 7]),
        (8, 4, {"copies": 2, "tensor_parallel": 2}, [4, 5, 6, 7]),
        (4, 0, {"copies": 2}, [0, 1]),
        (1, 1, {"memory": 0.4}, [0]),
        (8, 8, {"copies": 2, "memory": 0.5}, [6, 7]),
        (8, 4, {"devices": [7]}, [7]),
        (0, 4, {"copies": 2}, []),
        (0, 4, {"devices": [7]}, [7]),
    ],
)
def test_servers_do_not_share_a_gpu_unless_they_are_told_to(
    visible: int, trained: int, options: dict[str, Any], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "gpus", lambda: visible)
    assert engine(trained, **options)._gpus() == expected


@pytest.mark.parametrize(
    ("visible", "trained", "options", "message"),
    [
        (
            8,
            8,
            {},
            "the servers need 1 GPU beside 8 GPUs for the training, 9 in all; visible here: 8. Lower train.devices",
        ),
        (1, 0, {"copies": 2}, "the servers need 2 GPUs beside 0 GPUs for the training, 2 in all; visible here: 1"),
        (1, 0, {"copies": 2, "memory": 0.4}, "2 in all; visible here: 1"),
        (4, 0, {"devices": [4]}, "devices names GPU 4, and 4 are visible here, numbered from 0"),
    ],
)
def test_too_few_gpus_are_refused(
    visible: int, trained: int, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "gpus", lambda: visible)
    with pytest.raises(Unavailable, match=message):
        engine(trained, **options)._gpus()


@pytest.mark.parametrize(("accelerator", "beside"), [("auto", 2), ("cpu", 0)])
def test_a_training_tells_its_engines_which_gpus_it_uses(
    accelerator: str, beside: int, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_recipe.write(tmp_path, tiny_model_dir)
    made = load(
        path, ["vars.devices=2", f"stages.policy.train.accelerator={accelerator}", "stages.policy.rollout.engine=vllm"]
    )
    assert made.stages["policy"].rollout.engine._beside == beside  # type: ignore[attr-defined]
    assert made.built_anew("policy").rollout.engine._beside == beside  # type: ignore[attr-defined]
    monkeypatch.setattr(native, "gpus", lambda: 2)
    monkeypatch.setattr("fgrl.rollouts.serving.environment.require", lambda _python: None)
    if beside:
        with pytest.raises(Unavailable, match="3 in all; visible here: 2"):
            made.stages["policy"].rollout.engine.check_machine()  # type: ignore[attr-defined]


def test_devices_are_numbered_among_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = servers.Launch("python", (), {}, ((0,), (2,)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-7a")
    assert [launch.variables(copy)["CUDA_VISIBLE_DEVICES"] for copy in (0, 1)] == ["4", "GPU-7a"]
