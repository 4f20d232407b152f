"""Numbers that were measured by different settings are not subtracted."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from fgrl.evaluation.observations import Observations, Observed
from fgrl.results.comparing import compare
from fgrl.results.evaluations import Evaluation

SETTINGS: dict[str, Any] = {
    "name": "evaluate",
    "models": {"policy": {"base": {"product": "0123456789abcdef"}}},
    "sampling": {"temperature": 1.0},
    "rewards": {
        "score": {"name": "function", "path": {"sha256": "5" * 64}, "total": "sum"},
        "score model": {"name": "segment_rm", "model": {"product": "fedcba9876543210"}},
    },
    "metrics": [{"name": "length", "resamples": 100}, {"name": "rouge", "title": "overlap", "stemmer": True}],
}
DEPENDS = {"length": "metrics.0", "overlap": "metrics.1", "token_reward": "metrics.2"}
NUMBERS = (
    "token_reward.score",
    "token_reward.score good",
    "token_reward.score model",
    "length.words",
    "overlap.rouge_l",
)
OF_SCORE = {"token_reward.score", "token_reward.score good"}


def evaluation(path: str = "", value: Any = None) -> Evaluation:
    """With one setting changed."""
    stages = deepcopy(SETTINGS)
    *parts, last = path.split("/") if path else ["vars", "x"]
    inside: Any = stages
    for part in parts:
        inside = inside[int(part)] if isinstance(inside, list) else inside.setdefault(part, {})
    inside[last] = value
    metrics: dict[str, Any] = {}
    for place, name in enumerate(NUMBERS):
        metric, _, number = name.partition(".")
        metrics.setdefault(metric, {"policy": {}})["policy"][number] = {"mean": float(place)}
    made = Evaluation({"metrics": metrics, "observations": "sha256"})
    made.identity = {"settings": stages}
    made.observed = Observations(
        {name: Observed({}, {}, depends=[at]) for name, at in DEPENDS.items()}, {"a": "digest of the prompt"}
    )
    return made


@pytest.mark.parametrize(
    ("path", "value", "refused", "said"),
    [
        ("rewards/score/total", "mean", OF_SCORE, "rewards.score.total: mean, not sum"),
        ("rewards/score/path", {"sha256": "7" * 64}, OF_SCORE, f"rewards.score.path: sha256 {'7' * 12}, not sha256 {'5' * 12}"),
        ("metrics/1/stemmer", False, {"overlap.rouge_l"}, "metrics.overlap.stemmer: false, not true"),
        ("sampling/temperature", 0.5, set(NUMBERS), "sampling.temperature: 0.5, not 1"),
        ("rewards/score model/model", {"product": "0" * 16}, {"token_reward.score model"}, "rewards.score model.model: product 000000000000, not product fedcba987654"),
        ("models/policy/base", {"product": "0" * 16}, set(), ""),
        ("metrics/0/resamples", 500, set(), ""),
    ],
)  # fmt: skip
def test_only_numbers_of_equal_settings_are_subtracted(path: str, value: Any, refused: set[str], said: str) -> None:
    found = compare("evaluate", {"a": {"0": evaluation()}, "b": {"0": evaluation(path, value)}}).numbers
    assert {one.number for one in found} == set(NUMBERS)
    assert {one.number for one in found if not one.differences} == refused
    for one in found:
        notes = [note for note in one.notes if "no difference" in note]
        assert all(note.endswith(f"no difference is taken: {said}") for note in notes)
        assert bool(notes) == (one.number in refused)
        assert set(one.recipes) == {"a", "b"}, "its numbers are shown"
