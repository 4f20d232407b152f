"""Numbers that were measured by different settings are not subtracted."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl.results.comparing import compare
from fgrl.results.evaluations import Evaluation
from fgrl.results.measured_by import MeasuredBy

STAGES: dict[str, Any] = {
    "reward_model": {"name": "finetune", "algorithm": {"name": "bradley_terry", "aggregate": "mean"}},
    "policy": {"name": "rl", "algorithm": {"name": "ppo", "kl_coef": 0.1}},
    "evaluate": {
        "name": "evaluate",
        "models": {"policy": {"base": "${out:policy}"}},
        "sampling": {"temperature": 1.0},
        "rewards": {
            "score": {"name": "function", "path": "rewards.py:score", "total": "sum"},
            "score model": {"name": "segment_rm", "model": "${out:reward_model}"},
        },
        "metrics": [{"name": "length", "resamples": 100}, {"name": "rouge", "title": "overlap", "stemmer": True}],
    },
}
NUMBERS = (
    "token_reward.score",
    "token_reward.score good",
    "token_reward.score model",
    "length.words",
    "overlap.rouge_l",
)
OF_SCORE = {"token_reward.score", "token_reward.score good"}


def evaluation(path: str = "", value: Any = None) -> Evaluation:
    """Of the recipe with one setting changed."""
    stages = deepcopy(STAGES)
    *parts, last = path.split("/") if path else ["vars", "x"]
    inside: Any = stages
    for part in parts:
        inside = inside[int(part)] if isinstance(inside, list) else inside.setdefault(part, {})
    inside[last] = value
    metrics: dict[str, Any] = {}
    for place, name in enumerate(NUMBERS):
        metric, _, number = name.partition(".")
        metrics.setdefault(metric, {"policy": {}})["policy"][number] = {"mean": float(place)}
    return Evaluation(
        {"metrics": metrics}, {"policy": [answer_of("a", "p", "r")]}, measured_by=MeasuredBy("evaluate", stages)
    )


@pytest.mark.parametrize(
    ("path", "value", "refused", "said"),
    [
        ("evaluate/rewards/score/total", "mean", OF_SCORE, "evaluate.rewards.score.total: mean, not sum"),
        ("evaluate/metrics/1/stemmer", False, {"overlap.rouge_l"}, "evaluate.metrics.overlap.stemmer: false, not true"),
        ("evaluate/sampling/temperature", 0.5, set(NUMBERS), "evaluate.sampling.temperature: 0.5, not 1"),
        ("reward_model/algorithm/aggregate", "sum", {"token_reward.score model"}, "reward_model.algorithm.aggregate: sum, not mean"),
        ("policy/algorithm/kl_coef", 0.2, set(), ""),
        ("evaluate/metrics/0/resamples", 500, set(), ""),
    ],
)  # fmt: skip
def test_only_numbers_of_equal_settings_are_subtracted(path: str, value: Any, refused: set[str], said: str) -> None:
    found = compare("evaluate", {"a": {"0": evaluation()}, "b": {"0": evaluation(path, value)}}).numbers
    assert {one.number for one in found} == set(NUMBERS)
    assert {one.number for one in found if not one.differences} == refused
    for one in found:
        notes = [note for note in one.notes if "other settings" in note]
        assert all(note.endswith(f"no difference is taken: {said}") for note in notes)
        assert bool(notes) == (one.number in refused)
        assert set(one.recipes) == {"a", "b"}, "its numbers are shown"
