"""Numbers that were measured by different settings are not subtracted."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.statistics import weighted_mean
from fgrl.runs.results.comparing import Cell, Difference, compare, row_difference
from fgrl.runs.results.evaluations import Evaluation
from fgrl.runs.results.paper_table import cell_of, mark_best, measurement

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


def cell(evaluation: Evaluation, number: str, model: str) -> Cell:
    found = measurement({"0": {"e": evaluation}}, f"e/{number}", model)
    assert found
    return found


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


def rated(model: str, opponents: dict[str, str], values: list[float]) -> Evaluation:
    """One model's number, which depends on its opponents' answers."""
    number = weighted_mean(values, [str(place) for place in range(len(values))])
    made = Evaluation({"metrics": {"elo": {model: {"rating": {"mean": 1.0}}}}, "observations": "sha256"})
    observed = Observed({model: {"rating": number}}, {"resamples": 100}, alike={model: opponents})
    made.observed = Observations({"elo": observed}, {"0": "digest"})
    return made


@pytest.mark.parametrize(
    ("opponents", "said"),
    [
        ({"answers of sft": "1", "answers of rival": "2"}, ""),
        ({"answers of base": "1", "answers of rival": "2"}, ""),  # by another name
        ({"answers of sft": "1", "answers of rival": "3"}, "the answers of rival are others"),
        ({"answers of sft": "1"}, "the answers of rival are others"),
    ],
)
def test_ratings_are_subtracted_only_where_the_opponents_said_the_same(opponents: dict[str, str], said: str) -> None:
    one = rated("a", {"answers of sft": "1", "answers of rival": "2"}, [1.0, 2.0, 4.0])
    other = rated("b", opponents, [0.0, 2.0, 3.0])
    found = row_difference(cell(one, "elo.rating", "a"), cell(other, "elo.rating", "b"))
    if said:
        assert found == f"they are not measured in the same way: {said}"
        return
    assert isinstance(found, Difference)
    assert found.over_prompts is not None
    assert found.over_prompts.mean == pytest.approx(2 / 3)


def test_two_models_of_one_evaluation_are_measured_alike() -> None:
    own = rated("a", {"answers of b": "2"}, [1.0, 2.0])
    second = rated("b", {"answers of a": "1"}, [1.0, 1.0]).observed.metrics["elo"]
    first = own.observed.metrics["elo"]
    both = Observed({**first.numbers, **second.numbers}, {"resamples": 100}, alike={**first.alike, **second.alike})
    own.observed = Observations({"elo": both}, {"0": "digest"})
    own.report["metrics"]["elo"]["b"] = {"rating": {"mean": 1.0}}
    found = row_difference(cell(own, "elo.rating", "a"), cell(own, "elo.rating", "b"))
    assert isinstance(found, Difference)
    assert found.over_prompts is not None
    assert found.over_prompts.mean == pytest.approx(0.5)


def test_why_no_row_is_the_best_names_the_missing_observations() -> None:
    """One seed without observations has no interval at all."""
    rows = {
        row: cell(Evaluation({"metrics": {"own": {"a": {"n": {"mean": mean}}}}, "observations": None}), "own.n", "a")
        for row, mean in (("first", 1.0), ("second", 2.0))
    }
    cells = {row: cell_of(measured, 1.0) for row, measured in rows.items()}
    reason = "no observations: the metric returns finished numbers"
    assert mark_best(cells, rows, "higher") == f"no paired interval of second and first: {reason}"
