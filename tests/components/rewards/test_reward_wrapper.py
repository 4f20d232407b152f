"""Rewards that are computed from another reward: what the inner one needs, asks and reads counts for the outer one."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from pydantic import PrivateAttr
from scratch_registry import scratch

from fgrl.experiments.recipe import load
from fgrl.kinds import (
    Asker,
    Reward,
    RewardWrapper,
    Segmenter,
    note_step,
)
from fgrl.kinds.needs import Needing
from fgrl.registry import Problems, Settings, register
from fgrl.types import Message, Request, Rewards, Rollout

OWN = {"score", "scored", "asked_client"}
"""Methods that a wrapper has itself, or that look into its parts already."""


class Cut(Segmenter):
    """A segmenter that loads something."""

    _ready: bool = False

    def setup(self, run: Any) -> None:
        self._ready = True

    def starts(self, view: Any) -> Any: ...


class Inner(Reward):
    """Notes what it is asked, and answers recognizably."""

    reads_reference = True
    _calls: list[Any] = PrivateAttr(default_factory=list)

    def setup(self, run: Any) -> None:
        self._calls.append("setup")

    def needs(self) -> frozenset[str]:
        """Read before and after `setup`."""
        return frozenset({"ref_logp", "text"} if "setup" in self._calls else {"ref_logp"})

    def tokenizer(self) -> Any:
        return "its tokenizer"

    def fills(self) -> frozenset[str]:
        return frozenset({"verdict"})

    def check_prompts(self, samples: Any) -> None:
        self._calls.append(("check_prompts", samples))

    def at_step(self, step: int, total: int) -> None:
        self._calls.append(("at_step", step, total))

    def asks(self, given: Any) -> list[Request]:
        return [Request(messages=[Message(role="user", content=f"{given}")])]

    def asks_at_most(self, expected: Any) -> Any:
        return [expected]

    def counts(self) -> dict[str, Any]:
        return {"failed": 3}

    def actions(self, rollout: Rollout) -> Any:
        return rollout

    def score(self, rollout: Rollout) -> Rewards: ...


class Outer(RewardWrapper):
    """Wraps."""

    own_needs = frozenset({"policy"})
    own_fills = frozenset({"weight"})
    cut: Segmenter

    def score(self, rollout: Rollout) -> Rewards:
        return replace(self.reward.scored(rollout))


class Plain(Outer):
    """Needs nothing of its own."""

    own_needs = frozenset()


def test_every_method_of_a_reward_is_passed_on() -> None:
    """Also one that `Reward` gets later."""
    public = {
        name for cls in (Reward, Needing, Asker) for name, member in vars(cls).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }  # fmt: skip
    assert public - OWN <= vars(RewardWrapper).keys()


def test_what_the_inner_reward_says_counts_for_the_outer_one() -> None:
    inner, cut = Inner(), Cut()
    outer = Outer(reward=inner, cut=cut)
    assert outer.needs() == {"policy", "ref_logp"}
    outer.setup(None)  # type: ignore[arg-type]
    assert cut._ready
    assert outer.needs() == {"policy", "ref_logp", "text"}
    assert outer.fills() == {"weight", "verdict"}
    assert outer.tokenizer() == "its tokenizer"
    outer.check_prompts(["p"])  # type: ignore[list-item]
    note_step(outer, 1, 9)
    assert inner._calls == ["setup", ("check_prompts", ["p"]), ("at_step", 1, 9)]
    assert outer.asks(["q"])[0].messages[0].content == "['q']"  # type: ignore[list-item]
    assert outer.asks_at_most("e") == ["e"]  # type: ignore[arg-type, comparison-overlap]
    assert outer.counts() == {"failed": 3}
    assert outer.actions("r") == "r"  # type: ignore[arg-type, comparison-overlap]


def test_components_in_lists_mappings_and_blocks_are_set_up() -> None:
    class Block(Settings):
        cut: Segmenter

    class Containing(Plain):
        cuts: list[Segmenter]
        by_name: dict[str, list[Segmenter]]
        block: Block

    cuts = [Cut() for _ in range(4)]
    outer = Containing(reward=Inner(), cut=cuts[0], cuts=[cuts[1]], by_name={"a": [cuts[2]]}, block=Block(cut=cuts[3]))
    outer.setup(None)  # type: ignore[arg-type]
    assert all(cut._ready for cut in cuts)


def test_a_recipe_sees_through_a_wrapper(tmp_path: Path, tiny_model_dir: Path) -> None:
    """An unknown need of the inner reward is detected, and its reference is loaded."""
    path = tiny_recipe.write(tmp_path, tiny_model_dir)
    alone = [f"stages.{name}=null" for name in ("reward_model", "calibrate", "evaluate")]
    grpo = "stages.policy.algorithm={name: grpo, kl_coef: 0.0}"
    with scratch():

        @register("wrapped_twice")
        class Wrapped(RewardWrapper):
            """Wraps."""

            def score(self, rollout: Rollout) -> Rewards: ...

        @register("inner_reward")
        class Referring(Inner):
            """Needs a reference."""

        @register("plain_reward")
        class Plain(Reward):
            """Needs nothing, and has no setup."""

            def score(self, rollout: Rollout) -> Rewards: ...

        @register("needing")
        class Needing(Reward):
            """Needs what nothing computes."""

            def needs(self) -> frozenset[str]:
                return frozenset({"moods"})

            def score(self, rollout: Rollout) -> Rewards: ...

        def policy(inner: str) -> Any:
            reward = f"stages.policy.reward={{name: wrapped_twice, reward: {inner}}}"
            return load(path, [*alone, grpo, "stages.policy.rollout.per_prompt=2", reward]).stages["policy"]

        assert policy("inner_reward").reads_reference()
        assert not policy("{name: rubric}").reads_reference()
        assert not policy("plain_reward").reads_reference()
        with pytest.raises(Problems, match=r'reward\.reward: the reward needing needs "moods", which nothing computes'):
            policy("needing")
