"""Evaluations of a sweep over a coefficient, with invented numbers: as data, and as folders that `fgrl run` leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from fake_runs import estimate, write_json, write_stage

from fgrl.runs.results.evaluations import Evaluation, RecipeResults

WIN = "pairwise, GPT-4o, AlpacaEval prompts"


def report(kl: float, win: float, half: float = 0.02) -> dict[str, Any]:
    """What an evaluation against given answers measured."""
    return {
        "baseline": "gpt4_turbo",
        "metrics": {
            WIN: {
                "sft": {"win_rate": estimate(0.10, half), "length_adjusted": estimate(0.149, half)},
                "policy": {"win_rate": estimate(win - 0.02, half), "length_adjusted": estimate(win, half)},
                "about": "made up",
            },
            "kl": {
                "sft": {"sum": estimate(0.0, 0.0), "per_token": estimate(0.0, 0.0)},
                "policy": {"sum": estimate(kl, kl * 0.06), "per_token": estimate(kl / 300, 0.001)},
                "gpt4_turbo": {"sum": estimate(None), "per_token": estimate(None)},
            },
        },
    }


def sweep(method: str, gain: float, **more: Any) -> list[RecipeResults]:
    """Four coefficients: less KL for a larger one, and a win rate that grows with its root."""
    draw_ = random.Random(method)
    results = []
    for coefficient, kl in ((0.03, 4.0), (0.01, 9.0), (0.003, 16.0), (0.001, 25.0)):
        win = 0.149 + gain * kl**0.5 + draw_.gauss(0, 0.004)
        settings = {"stages.policy.algorithm.kl_coef": coefficient, "stages.policy.lr": 5e-7}
        results.append(
            RecipeResults(
                method, settings, {"evaluate": Evaluation(other(kl)), "alpaca_eval": Evaluation(report(kl, win))}
            )
        )
    return results


def other(kl: float) -> dict[str, Any]:
    """An evaluation on other prompts, which has a KL too."""
    return {"baseline": "sft", "metrics": {"kl": {"policy": {"sum": estimate(kl + 100, 1.0)}}}}


ALL = [*sweep("segment", 0.024), *sweep("token", 0.017), *sweep("bandit", 0.012)]


def recipes_at(*at: tuple[float, float]) -> list[RecipeResults]:
    return [RecipeResults(str(n), {}, {"e": Evaluation(report(x, y))}) for n, (x, y) in enumerate(at)]


def invocation(runs: Path, name: str, number: int, coefficient: float, measured: dict[str, Any] | None) -> Path:
    """The folder of a run as `fgrl run` leaves it."""
    folder = runs / name / f"20260501T0930{number:02}Z-{number:08x}"
    key = f"{name}{number}"
    out = runs / "stages" / f"alpaca_eval-{key}" / "out"
    out.mkdir(parents=True)
    if measured is not None:
        write_json(out / "metrics.json", measured)
        write_stage(out.parent)
    folder.mkdir(parents=True)
    stages = {"alpaca_eval": {"key": key, "kind": "evaluate", "dir": f"../../stages/alpaca_eval-{key}", "seconds": 1.0}}
    write_json(folder / "summary.json", {"recipe": name, "exit": 0, "stages": stages})
    (folder / "recipe.yaml").write_text(
        f"about: {number}\nstages:\n  policy: {{name: rl, algorithm: {{name: ppo, kl_coef: {coefficient}}}}}\n"
        "  alpaca_eval: {name: evaluate}\n"
    )
    return folder
