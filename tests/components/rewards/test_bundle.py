"""Several rewards in one: their sum against numpy, schedules that reach their end, and the union of what they need and ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr

from fgrl.components.rewards.bundle import RewardBundle
from fgrl.kinds import Reward
from fgrl.types import Rewards, Rollout, Sample

NAN = float("nan")


class Given(Reward):
    """Numbers of responses and of tokens."""

    label: str = "a"
    """Which."""
    fill: str | None = None
    """A column that it fills."""

    _numbers: tuple[list[float], list[list[float]]] = PrivateAttr(([], []))

    def needs(self) -> frozenset[str]:
        return frozenset({{"a": "entropy", "b": "text"}[self.label]})

    def fills(self) -> frozenset[str]:
        return frozenset({self.fill} if self.fill else ())

    def on_tokens(self) -> bool | None:
        return {"a": False, "b": None}[self.label]

    def check_prompts(self, samples: Any) -> None:
        self._counted["prompts"] = len(samples)

    def asks(self, given: Any) -> list[Any]:
        return [self.label]

    def score(self, rollout: Rollout) -> Rewards:
        response, token = map(torch.tensor, self._numbers)
        columns = {self.fill: response} if self.fill else {}
        return Rewards(response, token, token != 0, columns=columns, metrics={"seen": 1.0})


def given(label: str, response: list[float], token: list[list[float]] | None = None, fill: str | None = None) -> Given:
    made = Given(label=label, fill=fill)
    made._numbers = response, token or [[0.0, 0.0, each] for each in response]
    return made


def a_rollout(groups: list[int]) -> Rollout:
    rows = len(groups)
    ids = torch.zeros(rows, 3, dtype=torch.long)
    return Rollout(
        ids[:, :1], torch.ones(rows, 1).bool(), ids, torch.ones(rows, 3).bool(), torch.zeros(rows, 3).bool(),
        group=torch.tensor(groups), samples=[Sample(id=str(group), prompt="") for group in groups], texts=[""] * rows,
    )  # fmt: skip


def z(values: list[float]) -> np.ndarray:
    """Over the values that are known."""
    x = np.array(values)
    known = x[~np.isnan(x)]
    spread = known.std(ddof=1) if len(known) > 1 else 0.0
    return (x - known.mean()) / (spread + 1e-6) if spread else np.where(np.isnan(x), NAN, 0.0)


def test_each_is_normalized_in_its_group_before_the_sum() -> None:
    first, second = [0.0, 1.0, 1.0, 5.0, 5.0], [100.0, 300.0, 200.0, -7.0, 9.0]
    tokens = [[1.0, -1.0, each] for each in second]
    bundle = RewardBundle(
        rewards={"rule": given("a", first), "style": given("b", second, tokens)},
        weights={"style": 0.5},
        last_weights={"rule": 3.0},
    )
    rollout = a_rollout([4, 4, 4, 2, 2])
    for share, weight in ((0.0, 1.0), (0.25, 1.5), (1.0, 3.0)):
        bundle.at_progress(share)
        found = bundle.scored(rollout)
        wanted = weight * np.concatenate([z(first[:3]), z(first[3:])]) + 0.5 * np.concatenate(
            [z(second[:3]), z(second[3:])]
        )
        np.testing.assert_allclose(found.response.numpy(), wanted, atol=1e-5)
        np.testing.assert_allclose(found.token.sum(dim=1).numpy(), wanted, atol=1e-5)
        spread = [np.std(second[:3], ddof=1)] * 3 + [np.std(second[3:], ddof=1)] * 2
        np.testing.assert_allclose(found.token[:, 0].numpy(), 0.5 / np.array(spread), atol=1e-5)
    assert float(found.metrics["style"]) == pytest.approx(np.mean(second))  # type: ignore[arg-type]
    assert float(found.metrics["rule/weight"]) == 3.0  # type: ignore[arg-type]
    assert found.metrics["rule/seen"] == 1.0


def test_without_normalization_they_are_added_as_they_are() -> None:
    bundle = RewardBundle(
        rewards={"a": given("a", [1.0, 2.0], fill="x"), "b": given("b", [10.0, -10.0])},
        weights={"b": 0.1},
        normalize="none",
    )
    found = bundle.scored(a_rollout([0, 0]))
    assert found.response.tolist() == pytest.approx([2.0, 1.0])
    assert found.token.tolist() == [[0.0, 0.0, pytest.approx(2.0)], [0.0, 0.0, pytest.approx(1.0)]]
    assert found.columns["x"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("missing", "wanted"), [("any", [False, True, True]), ("all", [False, False, True])])
def test_a_part_that_is_missing(missing: Any, wanted: list[bool]) -> None:
    bundle = RewardBundle(
        rewards={"a": given("a", [1.0, NAN, NAN]), "b": given("b", [3.0, 4.0, NAN])}, normalize="none", missing=missing
    )
    found = bundle.scored(a_rollout([0, 0, 0]))
    assert found.response.isnan().tolist() == wanted
    assert found.response[0] == 4.0
    if missing == "all":
        assert found.response[1] == 4.0
        assert found.token[1].tolist() == [0.0, 0.0, 4.0]


def test_what_it_needs_and_asks_is_the_union() -> None:
    bundle = RewardBundle(rewards={"a": given("a", [1.0], fill="x"), "b": given("b", [1.0], fill="y")})
    assert bundle.needs() == {"entropy", "text"}
    assert bundle.fills() == {"x", "y"}
    assert bundle.on_tokens() is None
    assert bundle.asks([]) == ["a", "b"]
    assert bundle.asks_at_most(None) == []
    bundle.check_prompts([Sample(id="1", prompt="")] * 3)
    assert bundle.counts() == {"a": {"prompts": 3}, "b": {"prompts": 3}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rewards": {}}, "name one at least"),
        ({"rewards": {"a": given("a", [])}, "weights": {"b": 1.0}}, "weights: there is no reward b; the rewards: a"),
        ({"rewards": {"a": given("a", [], fill="x"), "b": given("b", [], fill="x")}}, "another reward fills x already"),
    ],
)
def test_mistakes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardBundle(**fields)
